"""The tables and figures of the paper, made by this code; each is a command of `multihead paper`.

`positions` (sinusoids, §3.5), `table1` (cost and path length of layer types, measured), `schedule` (learning rate,
§5.3), `table2` (training cost), `table3` (variations of the model: parameters counted, and every row trained).
"""
