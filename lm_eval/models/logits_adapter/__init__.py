"""Makes a model of a function from tokens to logits and a tokenizer: `lm_eval.models.from_logits`.

`model.LogitsLM` plans and answers requests; `function` calls the function and finds out how it may
be called; `logits` reads what it returns.
"""
