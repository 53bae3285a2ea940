"""What is told of a mistake is one line, whatever files are called."""

import pickle

from graftseg.core.errors import Code, UserError


def test_a_sentence_of_three_parts() -> None:
    error = UserError(Code.OPTION_INVALID, "scan.nii.gz", "cut off", "copy it again")
    assert str(error) == "scan.nii.gz: cut off; copy it again."
    again = pickle.loads(pickle.dumps(error))
    assert (again.where, again.finding, again.remedy) == ("scan.nii.gz", "cut off", "copy it again")


def test_names_cannot_talk_to_the_terminal() -> None:
    error = UserError(Code.OPTION_INVALID, "a\x1b[31mX\x07\nb é 漢.nii.gz", "cut off", "copy it again")
    assert str(error) == r"a\x1b[31mX\x07\nb é 漢.nii.gz: cut off; copy it again."
    assert error.where == "a\x1b[31mX\x07\nb é 漢.nii.gz", "the path itself stays what it is"
