"""Models on the Hugging Face Hub or a compatible server, named `hf:owner/name[@revision]`.

huggingface_hub downloads them and reads `HF_ENDPOINT`, `HF_TOKEN` and its other variables. A
revision is downloaded once and then read without a network connection.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path, PurePath

from absl import logging

from bilm.errors import BilmError, WeightsError
from bilm.storage.finding.cache import cached, filling, write_record
from bilm.storage.formats.known import find
from bilm.support.imports import optional
from bilm.support.model_files import CARD
from bilm.support.urls import masked


def snapshot(name: str) -> Path:
    """Return the folder that contains the files of a model; download them if they are missing.

    Args:
        name: `hf:owner/name`, followed by `@` and a branch, tag or commit other than main.
    Raises: BilmError if huggingface_hub is missing or the download fails, or if bilm cannot read
        the model.
    """
    parts = re.fullmatch(r"hf:([\w.-]+/[\w.-]+)(?:@(\S+))?", name, re.ASCII)
    if parts is None:
        raise WeightsError(f"{name}: expected hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    folder = cached(name) / "model"
    if folder.exists():
        return folder
    library, repository = optional("huggingface_hub", "hub", name), parts[1]
    with filling(folder.parent):
        if folder.exists():  # another process has downloaded it in the meantime
            return folder
        try:
            logging.info("%s: downloading to %s", name, folder)
            info = library.HfApi().model_info(repository, revision=parts[2])
            names = [PurePath(file.rfilename) for file in info.siblings or ()]
            _, files = find(names, name)
            chosen = {*files.values()} | {PurePath(CARD)} & {*names}
            patterns = [glob.escape(file.as_posix()) for file in chosen]
            how = {"revision": info.sha, "allow_patterns": patterns}
            library.snapshot_download(repository, local_dir=folder.with_name("part"), **how)
            folder.with_name("part").replace(folder)
        except BilmError:
            raise
        except Exception as error:  # the library's errors have no common base class
            reason = masked(" ".join(str(error).split())) or type(error).__name__
            raise WeightsError(f"{name}: cannot be downloaded: {reason[:300]}") from error
        write_record(folder.parent, name, revision=info.sha)
    return folder
