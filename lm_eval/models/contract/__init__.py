"""Checks whether a model does what `lm_eval.api.model.LM` requires: `lm_eval.check_model`.

`check` runs all checks. The modules `answer_checks`, `score_checks`, `text_checks` and
`chat_checks` contain them; `interview` asks the model, and `report` is what is found.
"""
