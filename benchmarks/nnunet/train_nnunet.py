"""Train and score nnU-Net v2 on the labeled scans of a folder, in a given number of minutes.

``python benchmarks/nnunet/train_nnunet.py DATA --minutes 5 --work WORK --out RECORD.json`` reads a folder with
``imagesTr``, ``labelsTr``, ``imagesTs`` and ``labelsTs``, such as ``benchmarks/strangers/benchmarks_to_nifti.py``
writes. Unlabeled scans are ignored. nnU-Net plans, trains on all labeled scans (fold ``all``) and predicts with its
default settings. Only the number of epochs differs: after two epochs, as many more are trained as fit into the time.
Its learning rate then decays over these epochs. The label maps are scored like those of graftseg.
"""

import argparse
import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

import numpy as np
import torch

import graftseg
from graftseg.core.devices import hardware_name
from graftseg.core.types import Split
from graftseg.data.dataset import Dataset
from graftseg.data.layouts import read_layout
from graftseg.data.scans import write_label, write_scan
from graftseg.evaluation.metrics import TOLERANCE

NUMBER, NAME = 901, "Dataset901_Benchmark"
TIMED_EPOCHS = 2
"""Number of epochs after which the number of epochs is chosen."""


def write_raw(dataset: Dataset, folder: Path) -> None:
    """Write the labeled and the test scans as an nnU-Net data set."""
    highest = 0
    roles: tuple[tuple[Split, str], ...] = (("labeled", "Tr"), ("test", "Ts"))
    for role, split in roles:
        for case in dataset.of(role):
            scan, label = dataset.reader.image(case), dataset.reader.label(case)
            for number, channel in enumerate(scan.array):
                target = folder / f"images{split}" / f"{case.name}_{number:04d}.nii.gz"
                write_scan(target, np.ascontiguousarray(channel), scan.geometry)
            write_label(folder / f"labels{split}" / f"{case.name}.nii.gz", label.array, label.geometry)
            highest = max(highest, int(label.array.max()))
    labels = {"background": 0} | {f"class {value}": value for value in range(1, highest + 1)}
    channels = {str(number): f"channel {number}" for number in range(len(scan.array))}
    facts = {"channel_names": channels, "labels": labels, "numTraining": len(dataset.of("labeled"))}
    (folder / "dataset.json").write_text(json.dumps(facts | {"file_ending": ".nii.gz"}))


def train(raw: Path, configuration: str, minutes: float, device: torch.device) -> tuple[Path, dict[str, float]]:
    """Plan, preprocess and train. Return the folder of the trained network, and seconds and epochs."""
    from nnunetv2.experiment_planning.plan_and_preprocess_api import extract_fingerprints, plan_experiments, preprocess
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    class TimedTrainer(nnUNetTrainer):  # type: ignore[misc]
        """The default trainer, with as many epochs as fit into the time and without validation."""

        num_epochs: int

        def run_training(self) -> None:
            """Train the first epochs, choose the number of epochs, and train the others."""
            self.on_train_start()
            while self.current_epoch < self.num_epochs:
                epoch_began = time.monotonic()
                self.on_epoch_start()
                self.on_train_epoch_start()
                steps = range(self.num_iterations_per_epoch)
                self.on_train_epoch_end([self.train_step(next(self.dataloader_train)) for _ in steps])
                self.current_epoch += 1
                now = time.monotonic()
                if self.current_epoch == TIMED_EPOCHS:
                    left = 60 * minutes - (now - began)
                    self.num_epochs = TIMED_EPOCHS + max(0, int(left / (now - epoch_began)))
                    self.lr_scheduler.max_steps = self.num_epochs
            self.on_train_end()

    TimedTrainer.__name__ = nnUNetTrainer.__name__  # the checkpoint names the class that predicts
    began = time.monotonic()
    extract_fingerprints([NUMBER], num_processes=4, check_dataset_integrity=True)
    identifier = plan_experiments([NUMBER])
    preprocess([NUMBER], identifier, configurations=[configuration], num_processes=[4])
    planned, began = time.monotonic() - began, time.monotonic()
    preprocessed = Path(os.environ["nnUNet_preprocessed"]) / NAME  # noqa: SIM112
    plans = json.loads((preprocessed / f"{identifier}.json").read_text()) | {"continue_training": False}
    description = json.loads((raw / "dataset.json").read_text())
    trainer = TimedTrainer(plans, configuration, "all", description, device)
    trainer.initialize()
    trainer.run_training()
    seconds = {"plan": round(planned, 1), "train": round(time.monotonic() - began, 1), "epochs": trainer.num_epochs}
    return Path(trainer.output_folder_base), seconds


def predict(model: Path, images: Path, out: Path, device: torch.device) -> float:
    """Predict all scans of a folder with nnU-Net's defaults. Return the seconds."""
    from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

    began = time.monotonic()
    predictor = nnUNetPredictor(device=device, perform_everything_on_device=device.type == "cuda", allow_tqdm=False)
    predictor.initialize_from_trained_model_folder(str(model), use_folds=("all",))
    predictor.predict_from_files(
        str(images), str(out), num_processes_preprocessing=2, num_processes_segmentation_export=2
    )
    return round(time.monotonic() - began, 1)


def main() -> None:
    """Train, predict, score and write one record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="new folder for the files of nnU-Net")
    parser.add_argument("--out", type=Path, required=True, help="record to write")
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="training time, without preprocessing and prediction"
    )
    parser.add_argument("--configuration", default="3d_fullres")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", required=True, help="commit to record")
    arguments = parser.parse_args()
    for name in ("raw", "preprocessed", "results"):
        os.environ[f"nnUNet_{name}"] = str(arguments.work / name)
    raw, device = arguments.work / "raw" / NAME, torch.device(arguments.device)
    dataset = read_layout(arguments.data)
    write_raw(dataset, raw)
    model, seconds = train(raw, arguments.configuration, arguments.minutes, device)
    seconds["predict"] = predict(model, raw / "imagesTs", arguments.work / "label_maps", device)
    scores = graftseg.evaluate(arguments.work / "label_maps", raw / "labelsTs", tolerance=TOLERANCE)
    cases = sorted({row.case for row in scores.rows})
    dice = {case: round(100 * fmean(row.dice for row in scores.rows if row.case == case), 3) for case in cases}
    record = {
        "data": arguments.data.name,
        "labeled": len(dataset.of("labeled")),
        "configuration": arguments.configuration,
        "checkpoint": "last",
        "seconds": seconds,
        "hardware": hardware_name(device),
        "versions": {name: version(name) for name in ("nnunetv2", "torch")},
        "commit": arguments.commit,
        "dice": dice,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"mean Dice {fmean(dice.values()):.2f} on {len(dice)} test scans, {seconds}")


if __name__ == "__main__":
    main()
