"""Models on the Hugging Face Hub or a compatible server, named `hf:owner/name[@revision]`.

huggingface_hub downloads them and reads `HF_ENDPOINT`, `HF_TOKEN` and its other variables. A
revision is downloaded once and then read without a network connection.
"""

import glob
import re
from pathlib import Path, PurePath

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding.cache import cached, filled, write_record
from bilm.storage.formats import find
from bilm.support.imports import optional
from bilm.support.model_files import CARD
from bilm.support.urls import masked

PREFIX = "hf:"
NAME = re.compile(rf"{PREFIX}([\w.-]+/[\w.-]+)(?:@(\S+))?", re.ASCII)
MAX_SHOWN = 300  # characters of a foreign error message


def snapshot(name: str) -> Path:
    """Return the folder that contains the files of a model; download them if they are missing.
    Raises: BilmError if huggingface_hub is missing, or if bilm cannot download or read the model.
    """
    match = NAME.fullmatch(name)
    if match is None:
        raise WeightsError(f"{name}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    repository, revision = match.groups()

    def fill(folder: Path) -> None:
        library = optional("huggingface_hub", "hub", name)
        logging.info("%s: downloading to %s", name, folder)
        part = folder.with_name("part")  # where huggingface_hub continues an interrupted download
        try:
            info = library.HfApi().model_info(repository, revision=revision)
            paths = [PurePath(file.rfilename) for file in info.siblings or ()]
            _, chosen = find(paths, name)
            patterns = [glob.escape(path.as_posix()) for path in (*chosen, PurePath(CARD))]
            library.snapshot_download(
                repository, revision=info.sha, allow_patterns=patterns, local_dir=part
            )
        except BilmError:
            raise
        except Exception as error:  # the library's errors have no common base class
            reason = masked(" ".join(str(error).split())) or type(error).__name__
            raise WeightsError(f"{name}: cannot be downloaded: {reason[:MAX_SHOWN]}") from error
        part.replace(folder)
        write_record(folder.parent, name, revision=info.sha)

    return filled(cached(name) / "model", fill)
