"""The life of a training run: its folder, its settings, its clock and its messages.

train: `multihead train`, from a request to a published model.
stages: runs on text that a model translates first, by back-translation or distillation.
reverse: the model that translates back.
synthetic: `multihead backtranslate`, pairs of which a model writes one side.
request: what a user asks for.
setup: decides what a new run is, or how an existing one is resumed.
sizing: chooses the preset that fits a text and a time budget.
limits: refuses runs that do not fit the memory of this machine, or take more than a week.
base_model: the model that fine-tuning starts from.
rehearsal: text of that model that is trained on again.
new_vocabulary: that model with the vocabulary of another text.
estimate: `multihead plan`, the time, memory and disk that a run will need.
loop: when to log, validate, save and stop.
log, signals: log files and progress; SIGTERM and Ctrl-C.
publish: chooses weights and writes the model folder.
publishing_time: how long publishing takes, for runs with a time limit.
prune: writes a model without some of its heads.
tuning, learn_shortlist, model_card: its search settings, its shortlist and its README.md.
"""
