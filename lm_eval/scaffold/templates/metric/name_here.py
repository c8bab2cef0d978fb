"""The metric `name_here`."""


def name_here(references: list[str], predictions: list[str], scale: float = 10.0) -> float:
    """Returns the score of one document: 1 for the correct number, less the further away it is.

    Args:
        references: a list with one item, the gold answer (`doc_to_target`). With several gold
            answers, the function is called once for each.
        predictions: a list with one item, the answer after the filters.
        scale: the distance at which the score is 1/2; the task file sets it beside `metric`.
    """
    try:
        distance = abs(float(references[0]) - float(predictions[0]))
    except ValueError:  # the answer is not a number
        return 0.0
    return scale / (scale + distance)
