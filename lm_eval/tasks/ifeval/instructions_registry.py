"""IFEval's instruction classes by name, and which of them cannot be combined."""

from __future__ import annotations

from lm_eval.tasks.ifeval import instructions

INSTRUCTION_DICT: dict[str, type[instructions.Instruction]] = {
    "keywords:existence": instructions.KeywordChecker,
    "keywords:frequency": instructions.KeywordFrequencyChecker,
    "keywords:forbidden_words": instructions.ForbiddenWords,
    "keywords:letter_frequency": instructions.LetterFrequencyChecker,
    "language:response_language": instructions.ResponseLanguageChecker,
    "length_constraints:number_sentences": instructions.NumberOfSentences,
    "length_constraints:number_paragraphs": instructions.ParagraphChecker,
    "length_constraints:number_words": instructions.NumberOfWords,
    "length_constraints:nth_paragraph_first_word": instructions.ParagraphFirstWordCheck,
    "detectable_content:number_placeholders": instructions.PlaceholderChecker,
    "detectable_content:postscript": instructions.PostscriptChecker,
    "detectable_format:number_bullet_lists": instructions.BulletListChecker,
    "detectable_format:constrained_response": instructions.ConstrainedResponseChecker,
    "detectable_format:number_highlighted_sections": instructions.HighlightSectionChecker,
    "detectable_format:multiple_sections": instructions.SectionChecker,
    "detectable_format:json_format": instructions.JsonFormat,
    "detectable_format:title": instructions.TitleChecker,
    "combination:two_responses": instructions.TwoResponsesChecker,
    "combination:repeat_prompt": instructions.RepeatPromptThenAnswer,
    "startend:end_checker": instructions.EndChecker,
    "change_case:capital_word_frequency": instructions.CapitalWordFrequencyChecker,
    "change_case:english_capital": instructions.CapitalLettersEnglishChecker,
    "change_case:english_lowercase": instructions.LowercaseLettersEnglishChecker,
    "punctuation:no_comma": instructions.CommaChecker,
    "startend:quotation": instructions.QuotationChecker,
}


def _all_except(*names: str) -> set[str]:
    return set(INSTRUCTION_DICT) - set(names)


#: For each instruction, others that conflict with it. Every instruction conflicts with itself.
INSTRUCTION_CONFLICTS: dict[str, set[str]] = {name: {name} for name in INSTRUCTION_DICT}
INSTRUCTION_CONFLICTS["language:response_language"] |= {
    "detectable_format:multiple_sections",
    "keywords:existence",
    "keywords:frequency",
    "keywords:forbidden_words",
    "startend:end_checker",
    "change_case:english_capital",
    "change_case:english_lowercase",
}
INSTRUCTION_CONFLICTS["length_constraints:number_paragraphs"] |= {
    "length_constraints:nth_paragraph_first_word",
    "length_constraints:number_sentences",
}
INSTRUCTION_CONFLICTS["length_constraints:nth_paragraph_first_word"].add(
    "length_constraints:number_paragraphs"
)
INSTRUCTION_CONFLICTS["detectable_format:constrained_response"] |= _all_except()
INSTRUCTION_CONFLICTS["detectable_format:multiple_sections"] |= {
    "language:response_language",
    "detectable_format:number_highlighted_sections",
}
INSTRUCTION_CONFLICTS["detectable_format:json_format"] |= _all_except(
    "keywords:forbidden_words", "keywords:existence"
)
INSTRUCTION_CONFLICTS["combination:two_responses"] = _all_except(
    "keywords:forbidden_words",
    "keywords:existence",
    "language:response_language",
    "detectable_format:title",
    "punctuation:no_comma",
)
INSTRUCTION_CONFLICTS["combination:repeat_prompt"] = _all_except(
    "keywords:existence", "detectable_format:title", "punctuation:no_comma"
)
INSTRUCTION_CONFLICTS["change_case:capital_word_frequency"] |= {
    "change_case:english_lowercase",
    "change_case:english_capital",
}
INSTRUCTION_CONFLICTS["change_case:english_lowercase"].add("change_case:english_capital")
INSTRUCTION_CONFLICTS["startend:quotation"].add("detectable_format:title")


def conflict_make(conflicts: dict[str, set[str]]) -> dict[str, set[str]]:
    """Makes conflicts mutual and includes each instruction in its own; returns the same mapping."""
    for name in conflicts:
        for other in list(conflicts[name]):
            conflicts[other].add(name)
        conflicts[name].add(name)
    return conflicts
