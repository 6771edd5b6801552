"""Settings: the fields that can be set, and how a run's configuration is combined from them.

directions: names of directions such as en-de.
fields: validation of values, without pydantic where they fit.
schema: the dataclasses, their defaults and their validation.
presets: settings under a name, such as tiny or table3-a-h1.
fit: settings that fit a text and a time budget.
resolve: layers of user input, presets and fitted values become one configuration, with the origin of each field.
serialization: config.json.
"""

from multihead.config.schema import DataConfig, ModelConfig, RunConfig, SearchConfig, TrainConfig

__all__ = ["DataConfig", "ModelConfig", "RunConfig", "SearchConfig", "TrainConfig"]
