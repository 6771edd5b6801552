"""The tables and figures of the paper, made by this code; each is a command of `multihead paper`, but for the heads.

In the order of the paper: `positions` (sinusoids, §3.5), `table1` (cost and path length of layer types, measured),
`schedule` (learning rate, §5.3), `table2` (training cost), `table3` (variations of the model, and their parameters),
`table3_study` (every row of it trained for the same time, and ranked), `parsing` (constituency parsing, Table 4),
`heads` (what each attention head does on a test set and what is lost without it, Figures 3 to 5: `multihead inspect`)
and `heads_picture`.
"""
