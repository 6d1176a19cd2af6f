"""Bad command lines and bad files: one line that says what to do, exit code 2, and nothing is written."""

import os
import re
import shlex
import shutil
import tempfile
import typing

import numpy as np
import pytest

from sddm import Diffusion
from sddm.cli import main
from sddm.commands import evaluate
from sddm.commands.evaluate import EvaluateCommand
from sddm.commands.sample import SampleCommand
from sddm.commands.train import TrainCommand
from sddm.data import Reading, load
from sddm.marginals import Hollow
from sddm.processes import BirthDeath, Uniform
from sddm.recipe import ModelConfig, SamplingConfig
from sddm.schedules import Constant
from sddm.training import TrainingConfig

SIZES = {"width": 8, "layers": 1, "heads": 2, "mlp": 8}
TINY = "--steps 2 --batch-size 8 " + " ".join(f"--{name} {value}" for name, value in SIZES.items())
TRAIN = f"train --data lines.txt {TINY}"
BIG, LONG = 10**12, "x" * 300

TEXTS = {
    "lines.txt": "abc\nbcabc\n" * 20,
    "empty.txt": "",
    "blank.txt": "\n\r\n\n",
    "same.txt": "aaa\naaa\n",
    "one-row.txt": "abcab\n",
    "long-line.txt": "ab" * 5_000,
    "longer.txt": "abcabcabc\ncbacbacba\n",
    "shorter.txt": "ab\nc\nca\n",
    "unknown.txt": "abxab\nbbabb\n",
    "two-rows.txt": "a_b\nc\n",
    "changing.txt": "abc\nbca\ncab\n",
    "table.csv": "colour,size\n" + "red,1\nblue,2\nred,2\n" * 5,
    "ragged.csv": "a,b\n1,2\n1\n",
    "constant.csv": "a,b\nx,1\nx,1\n",
    "header.csv": "a,b\n",
    "twice.csv": "a,a\n1,2\n",
    "quote.csv": 'a,b\n"x,1\n',
    "semicolons.csv": "a;b\n1;2\n",
    "narrow.csv": "colour\nred\nblue\n",
    "ragged.tsv": "a\tb\n1\t2\n1\n",
    "commas.tsv": "a,b\n1,2\n",
    "broken.jsonl": '{"a": 1}\n{"a": \n',
    "list.jsonl": "[1, 2]\n",
    "keys.jsonl": '{"a": 1}\n{"b": 1}\n',
    "nested.jsonl": '{"a": [1]}\n',
    "no-text.jsonl": '{"text": "ab"}\n{"text": null}\n',
    "headless.fasta": "ACGT\n",
    "hollow.fasta": ">a\nACGT\n>b\n",
    "good.fasta": ">a\nACGT\n>b\nAC\n",
    "header.smi": "SMILES name\n",
    "swapped.csv": "size,colour\n1,red\n2,blue\n",
    "taste.csv": "taste\nsweet\n",
    "green.csv": "colour,size\ngreen,1\nred,2\n",
    "damaged.parquet": "PAR1 and then nothing",
    "letter.docx": "abc",
    "broken/config.json": '{"format": 1,',
}
ARRAYS = {
    "whole.npy": np.arange(24).reshape(4, 6) % 4,
    "floats.npy": np.full((4, 4), 0.5),
    "unsigned.npy": np.zeros((2, 2), np.uint64),
    "words.npy": np.array([["a", "b"]]),
    "negative.npy": np.array([[0, -1], [1, 2]]),
    "flat.npy": np.arange(5),
    "zeros.npy": np.zeros((3, 3), int),
    "no-rows.npy": np.zeros((0, 3), int),
    "many-states.npy": np.array([[0, 10**9]]),
    "three-rows.npy": np.zeros((3, 5), int),
    "seven.npy": np.array([[7, -1]]),
}
WIDE = {
    "wide.npy": lambda path: np.save(path, np.eye(2, 10**6, dtype=np.uint8)),
    "wide.csv": lambda path: path.write_text("\n".join(",".join(map(str, range(i, i + 10**5))) for i in range(3))),
}
"""Far too many columns, made only for those who ask."""


def row(name, line, sentence):
    return pytest.param(line, sentence, id=name)


COMMANDS = [
    row("no such command", "trian", r"There is no command 'trian'\. The commands are: train, sample, evaluate, "),
    row("no such experiment", "reproduce poetry", r"There is no experiment 'poetry'\. Choose one of synthetic,"),
    row("no such cell", "reproduce synthetic --cells moo", r"No cell matches 'moo'\. The cells are: data/2spirals, "),
    row("no repeats", "reproduce synthetic --repeats 0", r"repeats must be at least 1, but it is 0"),
    row("no such scale", "reproduce synthetic --scale huge", r"'huge'.*Choose one of paper, small"),
    row("demo into a file", "demo --out lines.txt", r"is a file\. Name a folder"),
    row("demo of nothing", "demo --samples 0", r"samples must be at least 4, but it is 0"),
    row("no command", "--steps 3", r"There is no command '--steps'"),
    row("no data", "train", r"Missing from sddm train: --data\. `sddm train --help`"),
    row("no run", "sample", r"Missing from sddm sample: RUN\. `sddm sample --help`"),
    row("no run but options", "evaluate --rows 3", r"Missing from sddm evaluate: RUN\."),
    row("no value", f"{TRAIN} --steps", r"Missing value for argument '--steps': give one after it"),
    row("unknown option", f"{TRAIN} --frobnicate", r"Unrecognized options: --frobnicate\. `sddm train --help`"),
    row("misspelt option", f"{TRAIN} --batchsize 3", r"--batchsize, 3\. Perhaps you meant: --batch-size\."),
    row("misspelt option of sample", "sample run --temprature 2", r"Perhaps you meant: --temperature\."),
    row("misspelt option of evaluate", "evaluate run --sample 9", r"Perhaps you meant: --samples\."),
    row("option of another command", "sample run --learning-rate 1", r"Unrecognized options: --learning-rate, 1"),
    row("one argument too many", "sample run lines.txt", r"Unrecognized options: lines\.txt"),
    row("a flag with a value", f"{TRAIN} --bf16 no", r"Unrecognized options: no"),
    row("a word for a number", f"{TRAIN} --steps ten", r"--steps: 'ten' is not a whole number"),
    row("a fraction for a whole number", "sample run --num 1.5", r"--num: '1\.5' is not a whole number"),
    row("a word for a fraction", f"{TRAIN} --learning-rate fast", r"--learning-rate: 'fast' is not a number"),
    row(
        "unknown model",
        f"{TRAIN} --model gpt",
        r"'gpt' .* Choose one of energy, hollow, leave-one-out, masked, mlp-energy\.",
    ),
    row(
        "unknown process",
        f"{TRAIN} --process gaussian",
        r"Choose one of absorbing, birth-death, discret",
    ),
    row(
        "unknown schedule",
        f"{TRAIN} --schedule cosine",
        r"Choose one of constant, exponential, log-square",
    ),
    row(
        "unknown sampler",
        "sample run --sampler heun",
        r"Choose one of analytical, confident, entropic, euler, exact, first-hitting, in-order, lazy, ",
    ),
    row("unknown grid", "sample run --grid cosine", r"Choose one of log-share, pilot, share, tauldr, time\."),
    row("demo of no density", "demo --density torus", r"'torus' is not a density\. Choose one of 2spirals, 8gauss"),
    row("completion of no shell", "--tyro-print-completion", r"needs the name of a shell after it: bash, zsh, fish\."),
    row("completion of another", "--tyro-print-completion csh", r"needs the name of a shell after it"),
    row("demo of few samples", "demo --samples 3", r"samples must be at least 4, but it is 3"),
    row("demo of no steps", "demo --steps 0", r"steps must be at least 1, but it is 0"),
    row("demo without sampling", "demo --sampling-steps 0", r"sampling_steps must be at least 1"),
    row("demo of a negative seed", "demo --seed -1", r"seed must be at least 0"),
]

DATA = [
    row("missing file", "train --data nowhere.txt", r"There is no file 'nowhere\.txt'\. The toys are 2spirals"),
    row("name too long", f"train --data {LONG}.txt", r"cannot be read \(File name too long\)\. Check its name"),
    row("a folder", "train --data run", r"'run' is a directory\. Give the path of a file"),
    row(
        "unknown ending", "train --data letter.docx", r"files that end in \.npy, \.npz, \.txt, \.smi, \.fasta, \.csv, "
    ),
    row("empty file", "train --data empty.txt", r"'empty\.txt' is empty\. Give a file that holds data"),
    row("empty lines", "train --data blank.txt", r"holds empty lines only\. Give at least one line"),
    row("one character", "train --data same.txt", r"one character only, 'a'.* Give another text"),
    row("one row", "train --data one-row.txt", r"has 1 row, but a split needs at least 2\. Give more data"),
    row("not UTF-8", "train --data latin1.txt", r"is not UTF-8.* Convert the file, for example with iconv"),
    row("a long line", "train --data long-line.txt", r"at most 4096\. Pass --window N"),
    row("ragged table", "train --data ragged.csv", r"Line 3 .* 1 field, but the header has 2\. Correct the line"),
    row("constant columns", "train --data constant.csv", r"Nothing is left to learn .* a: constant, 'x'.* that vary"),
    row("header only", "train --data header.csv", r"a header but no rows\. Give at least one row"),
    row("a name twice", "train --data twice.csv", r"the name 'a' twice\. Names must differ"),
    row("open quote", "train --data quote.csv", r"not valid csv near line 2.* Check the quotes"),
    row("ragged tabs", "train --data ragged.tsv", r"1 field, but the header has 2\. .* fields that hold tabs"),
    row("commas for tabs", "train --data commas.tsv", r"looks like several\. Separate them by tabs"),
    row("no JSON", "train --data broken.jsonl", r"Line 2 .* is not JSON\. Write an object a line"),
    row("no object", "train --data list.jsonl", r"Line 1 .* is no object with keys and values"),
    row(
        "other keys", "train --data keys.jsonl", r"Line 2 .* has the keys 'b', but the first has 'a'\. Give all objects"
    ),
    row("nested objects", "train --data nested.jsonl", r"Line 1 .* holds 1 under 'a', but a table has one number"),
    row("no text", "train --data no-text.jsonl", r"Line 2 .* has no text\. Leave it out"),
    row("no header", "train --data headless.fasta", r"begins with 'ACGT', but a sequence needs a header, '>name'"),
    row("no sequence", "train --data hollow.fasta", r"Sequence 2 .* is empty\. Leave it out"),
    row(
        "a window too long", "train --data good.fasta --window 9", r"window is 9, but the longest sequence .* has 4 let"
    ),
    row("no molecules", "train --data header.smi", r"holds no molecules\. Give one a line"),
    row("semicolons", "train --data semicolons.csv", r"looks like several\. Separate them by commas"),
    row("a hundred thousand columns", "train --data wide.csv", r"has 100000 columns, but at most 65536 .* Drop some"),
    row("a million positions", "train --data wide.npy", r"has 1000000 positions .* Cut the samples"),
    row("damaged parquet", "train --data damaged.parquet", r"damaged or not a parquet file .* Save it again"),
    row("damaged array", "train --data cut.npy", r"damaged or not a numpy file .* Save it again"),
    row("a false promise", "train --data promise.npy", r"damaged or not a numpy file .* Save it again"),
    row(
        "pickled objects", "train --data objects.npy", r"Pickles can run code and are not read: save an array of whole"
    ),
    row("floats", "train --data floats.npy", r"holds float64\. .* convert with \.astype\('int64'\)"),
    row("too large a type", "train --data unsigned.npy", r"holds uint64\. .* convert with"),
    row("words", "train --data words.npy", r"must hold whole numbers .* holds <U1"),
    row("negative tokens", "train --data negative.npy", r"its smallest is -1\. Number the values from 0"),
    row("one axis", "train --data flat.npy", r"has shape \(5,\)\. Reshape it"),
    row("nothing but zeros", "train --data zeros.npy", r"All tokens of zeros\.npy equal 0.* Give others"),
    row("no rows", "train --data no-rows.npy", r"Give at least one row and one position"),
    row("a billion states", "train --data many-states.npy", r"at most 1000000 are possible\. Number the values"),
    row("two arrays", "train --data two.npz", r"holds 2 arrays: 'a', 'b'\. Choose one with key"),
    row("no arrays", "train --data none.npz", r"holds no arrays\. Save one"),
    row("no such array", "train --data two.npz --key c", r"no array 'c'\. It holds 'a', 'b'"),
    row("key of no archive", "train --data whole.npy --key a", r"only \.npz files take this"),
    row(
        "window of no text",
        "train --data whole.npy --window 4",
        r"only \.txt, \.fasta, \.mid, .* and moby-dick, melodies, chorales take",
    ),
    row(
        "window of a toy",
        "train --data moons --window 4",
        r"only \.txt, \.fasta, \.mid, .* and moby-dick, melodies, chorales take",
    ),
]

TRAINING = [
    *(
        row(f"{option} {value}", f"{TRAIN} --{option} {value}", sentence)
        for option, value, sentence in [
            ("held-out", "0", r"held_out must lie between 0 and 1, but it is 0"),
            ("held-out", "1", r"held_out must lie between 0 and 1, but it is 1"),
            ("held-out", "nan", r"held_out must be finite"),
            ("window", "0", r"window must be at least 1, but it is 0"),
            ("window", BIG, r"too few for 2 windows of \d+\. Choose a window of at most"),
            ("left", "0", r"left must lie between 0 and 1, but it is 0"),
            ("left", "nan", r"left must lie between 0 and 1, but it is nan"),
            ("width", "0", r"width must be at least 1, but it is 0"),
            ("width", "7", r"width must be a multiple of twice heads, but 7 is not of 2"),
            ("width", BIG, r"width must be at most 65536, but it is 1000000000000"),
            ("layers", "0", r"layers must be at least 1"),
            ("layers", BIG, r"layers must be at most 1024"),
            ("heads", "-1", r"heads must be at least 1, but it is -1"),
            ("heads", BIG, r"heads must be at most 1024"),
            ("mlp", "0", r"mlp must be at least 1"),
            ("mlp", BIG, r"mlp must be at most 1048576"),
            ("dropout", "1", r"dropout must lie in \[0, 1\), but it is 1\.0"),
            ("film-blocks", "-1", r"film_blocks must be at least 0"),
            ("time-scale", "0", r"time_scale must be above 0"),
            ("input-gain", "nan", r"input_gain must be finite"),
            ("steps", "0", r"steps must be at least 1"),
            ("steps", BIG, r"steps must be at most 999999999"),
            ("batch-size", "0", r"batch_size must be at least 1"),
            ("batch-size", BIG, r"batch_size must be at most 1000000"),
            ("learning-rate", "0", r"learning_rate must be above 0"),
            ("learning-rate", "inf", r"learning_rate must be finite"),
            ("warmup", "1", r"warmup must lie in \[0, 1\)"),
            ("weight-decay", "-1", r"weight_decay must be at least 0"),
            ("clip", "0", r"clip must be above 0"),
            ("ema", "1", r"ema must lie in \[0, 1\)"),
            ("ema-share", "0", r"ema_share must lie in \(0, 1\]"),
            ("noise-weight", "3", r"noise_weight must lie in \[0, 2\], but it is 3\.0"),
            ("in-order", "1.5", r"in_order must lie in \[0, 1\], but it is 1\.5"),
            ("label-dropout", "1.5", r"label_dropout must lie in \[0, 1\], but it is 1\.5"),
            ("transpose", "-1", r"transpose must be at least 0"),
            ("transpose", "5", r"transpose is for music, but the data are characters"),
            ("voices", "4", r"voices=4 was given, but only \.mid, \.midi, \.zip files"),
            ("steps-per-beat", "4", r"steps_per_beat=4 was given, but only \.mid, "),
            ("beats-per-bar", "3", r"beats_per_bar=3 was given, but only \.mid, "),
            (
                "kinds",
                "a=number",
                r"kinds='{.*}' was given, but only \.csv, \.parquet, \.tsv, \.jsonl files",
            ),
            ("kinds", "a", r"kinds is 'a', but it must be such as age=number,id=drop"),
            ("kinds", "a=colour", r"kinds says that 'a' is 'colour', but a column is one of category, number, "),
            ("kinds", "nowhere.json", r"There is no file 'nowhere\.json'\. Name a file with the kinds"),
            ("size", "8", r"size=8 was given, but only \.npy, \.npz, \.png, .* files and cifar10, "),
            ("levels", "4", r"levels=4 was given, but only \.npy, "),
            ("pool", "7", r"pool must be at least 8, but it is 7"),
            ("pool", BIG, r"pool must be at most 1000000"),
            ("num-positions", "0", r"num_positions must be at least 1"),
            ("num-positions", "6", r"num_positions is 6, but the data have only 5 positions"),
            ("accumulate", "0", r"accumulate must be at least 1"),
            ("accumulate", "3", r"batch_size must be a multiple of accumulate, but 8 is not of 3"),
            ("accumulate", BIG, r"batch_size must be a multiple of accumulate"),
            ("seed", "-1", r"seed must be at least 0"),
            ("seed", 2**64, r"seed must be at most 9223372036854775807"),
            ("log-every", "0", r"log_every must be at least 1"),
            ("evaluate-every", "0", r"evaluate_every must be at least 1"),
            ("save-every", "0", r"save_every must be at least 1"),
            ("keep", "0", r"keep must be at least 1"),
        ]
    ),
    row(
        "pool without return", f"{TRAIN} --pool 16 --process absorbing", r"pool needs a process under which every value"
    ),
    row("no minutes", "train --data lines.txt --minutes 0", r"minutes must be above 0, but it is 0"),
    row("many minutes", "train --data lines.txt --minutes 1e9", r"at most 525600, a year, but it is 1e\+09"),
    row("steps and minutes", f"{TRAIN} --minutes 5", r"Give --steps or --minutes, not both\."),
    row(
        "a tracker that is not installed", f"{TRAIN} --tracker wandb", r"tracker='wandb' needs the package wandb, which"
    ),
    row(
        "resume for another time",
        "train --resume --out run --minutes 5",
        r"was started with None, and keeps its 2 steps",
    ),
    row("folder of another run", f"{TRAIN} --out run", r"already holds a run\. Go on with it by --resume, or name"),
    row("folder is a file", f"{TRAIN} --out table.csv", r"'table\.csv' is a file\. Name a folder for the run"),
    row("folder in a file", f"{TRAIN} --out table.csv/run", r"as 'table\.csv' is a file\. Name another place"),
    row("folder of a long name", f"{TRAIN} --out {LONG}", r"file name too long\. .* name another folder"),
    row("resume without folder", "train --resume", r"--resume needs --out with the folder of the run"),
    row("resume with half an option", "train --resume --out", r"--resume needs --out"),
    row("resume what never began", "train --resume --out nowhere", r"Missing from sddm train: --data"),
    row("resume with other data", "train --resume --out run --data whole.npy", r"Bring the file back, or start a new"),
    row("resume another model", "train --resume --out run --width 16", r"Leave out the options that change it, or"),
    row("resume uneven batches", "train --resume --out run --accumulate 3", r"must be a multiple of accumulate"),
]

SAMPLING = [
    *(
        row(f"{option} {value}", f"sample run --{option} {value}", sentence)
        for option, value, sentence in [
            ("num", "0", r"num must be at least 1"),
            ("num", BIG, r"num must be at most 10000000"),
            ("give", "3", r"give says what is taken of a condition\. Name its file with --condition"),
            ("condition lines.txt --give", "3", r"give=3 was given, which is for music, but the data are characters"),
            ("track", "violin", r"track says what is taken of a condition\. Name its file with --condition"),
            (
                "condition lines.txt --track",
                "violin",
                r"track='violin' was given, but a condition that ends in '\.txt' h",
            ),
            ("condition lines.txt --fill", "2:3", r"fill='2:3' was given, which is for music"),
            ("condition lines.txt --keep-voice", "alto", r"keep_voice='alto' was given, which is for music"),
            ("where", "'age>=40'", r"where is for tables, but the data are characters\. Leave it out"),
            ("prefix a --where", "'age>=40'", r"Give --where or --prefix, not both"),
            ("steps", "0", r"steps must be at least 1"),
            ("steps", BIG, r"steps must be at most 1000000"),
            ("corrector-entry", "0", r"corrector_entry must lie in \(0, 1\]"),
            ("corrector", "-1", r"corrector must be at least 0"),
            ("corrector", BIG, r"corrector must be at most 1000"),
            (
                "informed",
                "2",
                r"informed=2 says how many positions a round of correction draws again",
            ),
            ("corrector-factor", "0", r"corrector_factor must be above 0"),
            ("corrector-factor", "1e300", r"corrector_factor must lie between 1e-06 and 1e\+06"),
            ("guidance", "nan", r"guidance must be finite"),
            ("particles", "3", r"particles is for samples that a reward steers\. Name its function with --reward"),
            ("reward nowhere.py:f --particles", BIG, r"particles must be at most 100000"),
            ("guidance", "-1e300", r"guidance must lie between -1e\+06 and 1e\+06"),
            ("temperature", "0", r"temperature must be above 0"),
            ("temperature", "nan", r"temperature must be finite"),
            ("temperature", "1e-300", r"temperature must lie between 1e-06 and 1e\+06"),
            ("seed", "-1", r"seed must be at least 0"),
            ("seed", 2**64, r"seed must be at most 9223372036854775807"),
            ("batch-size", "0", r"batch_size must be at least 1"),
            ("length", "0", r"length must be at least 1"),
            ("length", "4", r"length is 4, but the model was built for 5 positions\. Leave out length"),
            ("length", BIG, r"length must be at most 65536"),
            ("condition", "nowhere.txt", r"There is no file 'nowhere\.txt'\. Name a file with what is known"),
            ("condition", "empty.txt", r"'empty\.txt' is empty"),
            ("condition", "table.csv", r"A condition can be read from files that end in \.txt, \.npy"),
            ("condition", "floats.npy", r"must hold whole numbers"),
            ("condition", "whole.npy", r"has 6 positions, but samples have 5\. Shorten it"),
            ("condition", "longer.txt", r"has 9 positions, but samples have 5\. Shorten it"),
            ("condition", "unknown.txt", r"holds 'x', which is not in the alphabet 'abc'\. An unknown character is"),
            ("condition", "seven.npy", r"token 7 at position 0, but tokens there are 0 to 3, and -1 is a blank"),
            (
                "num 16 --condition",
                "three-rows.npy",
                r"3 rows, but 16 samples were asked for\. Give one row a sample, or one",
            ),
            ("prefix", "abcab", r"The prefix has 5 tokens, but samples have 5\. .* leave one to generate"),
            ("prefix", "abcabcabc", r"The prefix has 9 tokens"),
            ("prefix", "''", r"The prefix has 0 tokens, .* Give at least one"),
            ("prefix", "xy", r"'prefix' holds 'x', which is not in the alphabet 'abc'"),
            ("out", "samples.docx", r"Samples can be written to files that end in \.txt, \.npy"),
            ("out", "samples", r"ends in ''\. Samples can be written to"),
            ("out", "lines.txt", r"'lines\.txt' exists\. Name another file, or pass --overwrite"),
            ("out", "folder.txt", r"'folder\.txt' is a directory\. Name a file"),
            ("out", "lines.txt/s.txt", r"'lines\.txt' is a file\. Name another place"),
            ("out", f"{LONG}.txt", r"file name too long\. .* name another"),
        ]
    ),
    row(
        "rows for other samples", "sample run --num 3 --condition two-rows.txt", r"condition has 2 rows, but 3 samples"
    ),
    row("condition and prefix", "sample run --condition two-rows.txt --prefix a", r"Give --condition or --prefix, not"),
    row("overwrite a folder", "sample run --out folder.txt --overwrite", r"is a directory\. Name a file"),
    row("prefix of a table", "sample table --prefix red", r"A prefix cannot be given for columns.* Give a condition"),
    row("unknown column", "sample table --condition taste.csv", r"a column 'taste', which the data do not have"),
    row("where of no column", "sample table --where 'age>=40'", r"where: 'age>=40' is no test of a column\. Write a"),
    row("where of no value", "sample table --where colour=green", r"cannot be tested, as column 'colour' has no value"),
    row(
        "where of nothing", "sample table --where 'size>7'", r"no value of column 'size' satisfies 'size>7'\. It holds"
    ),
    row("unknown value", "sample table --condition green.csv", r"no value 'green'\. Its values are 'blue', 'red'"),
    row("analytical without x0", "sample explicit --sampler analytical", r"needs a model that predicts x0.* Use Euler"),
    row("pilot in order", "sample run --grid pilot", r"InOrder does not take its steps .* or leave the grid out"),
    row("any length", "sample any-length", r"length must be given: .* Pass length"),
    row("prefix of any length", "sample any-length --prefix 0", r"length must be given: .* Pass length"),
    row("no such run", "sample nowhere", r"There is no run 'nowhere'\. Name the folder that `sddm train` printed"),
    row("no such run beside others", "sample ./nowhere", r"There is no run '\./nowhere'\. Name the folder"),
    row("slip in runs/", "sample runs/liness", r"There is no run 'runs/liness'\. Name the folder"),
    row("run is a file", "sample lines.txt", r"There is no run 'lines\.txt'\. Name the folder"),
    row("run is an empty folder", "sample folder.txt", r"holds no config\.json.* Name the folder"),
    row("run of a long name", f"sample {LONG}", r"file name too long\. .* name another folder"),
    row("not on the hub", "sample owner/name", r"nor a repository that could be fetched .* Name the folder"),
    row("damaged model", "sample broken", r"is not valid JSON.* save the model again"),
    row("weights of another model", "sample mixed", r"does not hold the weights of the model.* Save the model again"),
]

EVALUATION = [
    *(
        row(f"{option} {value}", f"evaluate run --{option} {value}", sentence)
        for option, value, sentence in [
            ("rows", "1", r"rows must be at least 2"),
            ("data lines.txt --voices", "4", r"voices=4 was given, but only \.mid, \.midi, \.zip files"),
            ("data lines.txt --steps-per-beat", "4", r"steps_per_beat=4 was given, but only \.mid, "),
            ("data lines.txt --beats-per-bar", "3", r"beats_per_bar=3 was given, but only \.mid, "),
            ("data lines.txt --size", "8", r"size=8 was given, but only \.npy, "),
            ("data lines.txt --levels", "4", r"levels=4 was given, but only \.npy, "),
            ("num-times", "0", r"num_times must be at least 8"),
            ("num-times", "12", r"num_times must be a multiple of 8, but it is 12"),
            ("num-times", BIG, r"num_times must be at most 10000"),
            ("samples", "-1", r"samples must be at least 0"),
            ("samples", "3", r"samples must be 0 or at least 4, but it is 3"),
            ("samples", BIG, r"samples must be at most 1000000"),
            ("steps", "0", r"steps must be at least 1"),
            ("steps", BIG, r"steps must be at most 1000000"),
            ("seed", "-1", r"seed must be at least 0"),
            ("seed", 2**64, r"seed must be at most 9223372036854775807"),
            ("window", "3", r"Options such as (window|key) say how a file is read\. Name the file with --data"),
            ("key", "a", r"Options such as (window|key) say how a file is read\. Name the file with --data"),
            ("out", "figures.txt", r"out must end in \.json, but it is 'figures\.txt'"),
            ("out", "folder.json", r"'folder\.json' is a directory\. Name a file"),
            ("out", "lines.txt/figures.json", r"'lines\.txt' is a file\. Name another place"),
            ("report", "page.pdf", r"report must end in \.html or \.png, but it is 'page\.pdf'"),
            ("report", "lines.txt/page.html", r"'lines\.txt' is a file\. Name another place"),
            ("report", "page.html", r"A report is about a table, but this model was trained on characters\. Leave out"),
            ("report page.html --samples", "39", r"A report needs at least 40 samples, but samples is 39\. Raise"),
            ("target", "size", r"target is a column of a report\. Name a file with --report"),
            ("data", "nowhere.txt", r"There is no file 'nowhere\.txt'"),
            ("data", "empty.txt", r"'empty\.txt' is empty"),
            ("data", "one-row.txt", r"one row to score, but an error bar needs two\. Name more with --data"),
            ("data", "whole.npy", r"holds integers, but the model was trained on characters\. Name data of that kind"),
            ("data", "table.csv", r"holds columns, but the model was trained on characters\. Name data of that kind"),
            ("data", "moons", r"moons holds points, but the model was trained on characters"),
            ("data", "unknown.txt", r"'x', which is not in the alphabet\. Name other data"),
            ("data", "longer.txt", r"9 positions a row, but the model was built for 5\. Name data of that length"),
        ]
    ),
    row("window of nothing", "evaluate run --data lines.txt --window 0", r"window must be at least 1"),
    row("no such run to evaluate", "evaluate nowhere", r"There is no run 'nowhere'\. Name the folder"),
    row("nothing held out", "evaluate explicit", r"data must be given with --data"),
    row("tokens out of range", "evaluate any-length --data whole.npy", r"must hold tokens from 0 to 2, but it holds"),
    row(
        "a column too few", "evaluate table --data narrow.csv", r"no column 'size'\. It has 'colour'\. Name other data"
    ),
    row("values never seen", "evaluate table --data green.csv", r"has no value 'green'.* Name other data"),
    row(
        "a report without training rows",
        "evaluate table --data table.csv --report page.html",
        r"rows that the model was trained on, but 'table' is not the folder of a run\. Name the folder",
    ),
    row("data that changed", "evaluate changed", r"is not what it was when the run was started\. Name the data with"),
]

TABLE = [*COMMANDS, *DATA, *TRAINING, *SAMPLING, *EVALUATION]


pytestmark = pytest.mark.usefixtures("without_annotation_checks")


@pytest.fixture(autouse=True)
def without_network(monkeypatch):
    def unreachable(*arguments, **options):
        raise OSError("no network here")

    monkeypatch.setattr("sddm._pretrained.snapshot_download", unreachable)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """All files that the table names, a tiny run, and four saved models."""
    folder = tmp_path_factory.mktemp("originals")
    for name in ("tmp", "broken", "folder.txt", "folder.json"):
        (folder / name).mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text, newline="")
    for name, array in ARRAYS.items():
        np.save(folder / name, array)
    (folder / "latin1.txt").write_bytes("café\nabcd\n".encode("latin1"))
    (folder / "cut.npy").write_bytes((folder / "whole.npy").read_bytes()[:100])
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (1000000, 1000000), }".ljust(117) + b"\n"
    (folder / "promise.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00" + header + bytes(80))
    np.save(folder / "objects.npy", np.array([[1, [2]]], dtype=object), allow_pickle=True)
    np.savez(folder / "two.npz", a=np.eye(2, dtype=int), b=np.eye(3, dtype=int))
    np.savez(folder / "none.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        main(shlex.split(f"{TRAIN} --out run"))
        main(shlex.split(f"train --data changing.txt {TINY} --out changed"))
        (folder / "changing.txt").write_text("abc\nbca\nbbb\n")
    shutil.copytree(folder / "run", folder / "runs" / "lines")
    for name, length, implicit in (("explicit", 5, False), ("any-length", None, True)):
        process = (Uniform if implicit else BirthDeath)(3, Constant(1.0)).leaving(0.02)
        Diffusion(process, Hollow.for_process(process, length, implicit=implicit, **SIZES)).save_pretrained(
            folder / name
        )
    ModelConfig(**SIZES).build(load(folder / "table.csv")).save_pretrained(folder / "table")
    shutil.copytree(folder / "explicit", folder / "mixed")
    shutil.copy(folder / "any-length" / "model.safetensors", folder / "mixed")
    return folder


@pytest.fixture
def workplace(originals, tmp_path, monkeypatch):
    """A working folder with links to all of them, where temporary files would be seen too."""
    folder = tmp_path / "workplace"
    shutil.copytree(originals, folder, copy_function=os.link)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    return folder


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused(arguments, capsys, folder):
    """What a command that must fail says on standard error."""
    before = contents(folder)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert contents(folder) == before
    return capsys.readouterr().err


@pytest.mark.parametrize(("line", "sentence"), TABLE)
def test_a_bad_command_is_answered_by_one_line_and_writes_nothing(line, sentence, workplace, capsys):
    for name, make in WIDE.items():
        if name in line:
            make(workplace / name)
    said = refused(shlex.split(line), capsys, workplace)
    assert re.fullmatch(r"sddm: \S.*[.?]\n", said), said
    assert re.search(sentence, said)


def test_the_table_is_long_and_holds_no_line_twice():
    lines = [parameters.values[0] for parameters in TABLE]
    assert len(set(lines)) == len(lines) >= 80


def numeric_options(*configs):
    for config in configs:
        for name, kind in typing.get_type_hints(config).items():
            if {int, float} & {kind, *typing.get_args(kind)}:
                yield name.replace("_", "-")


@pytest.mark.parametrize(
    ("command", "configs"),
    [
        ("train", (TrainCommand, ModelConfig, TrainingConfig, Reading)),
        ("sample", (SampleCommand, SamplingConfig)),
        ("evaluate", (EvaluateCommand, Reading)),
    ],
)
def test_every_option_that_is_a_number_has_a_bad_value_in_the_table(command, configs):
    lines = [parameters.values[0] for parameters in (*TRAINING, *SAMPLING, *EVALUATION)]
    ends = {line.split()[-2].removeprefix("--") for line in lines if line.startswith(command + " ") and "--" in line}
    names = set(numeric_options(*configs))
    assert names - ends == set()
    assert len(names) >= 6


def test_debug_shows_where_an_error_came_from(workplace, capsys):
    arguments = ["train", "--data", "floats.npy"]
    plain = refused(arguments, capsys, workplace)
    *trace, last = refused([*arguments, "--debug"], capsys, workplace).splitlines(keepends=True)
    assert trace[0].startswith("Traceback")
    assert any("arrays.py" in line for line in trace)
    assert last == plain


def test_debug_shows_which_check_of_an_option_failed(workplace, capsys):
    *trace, last = refused(["sample", "run", "--num", "0", "--debug"], capsys, workplace).splitlines()
    assert any("__post_init__" in line for line in trace)
    assert last == "sddm: num must be at least 1, but it is 0."


@pytest.mark.parametrize("line", ["train", f"{TRAIN} --batchsize 3", "sample run --sampler heun"])
def test_what_is_said_does_not_depend_on_the_width_of_the_terminal(line, workplace, capsys, monkeypatch):
    said = set()
    for columns in ("40", "80", "300"):
        monkeypatch.setenv("COLUMNS", columns)
        said.add(refused(shlex.split(line), capsys, workplace))
    assert len(said) == 1


def test_a_batch_that_the_processes_cannot_share_is_refused(workplace, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    said = refused(shlex.split(f"{TRAIN} --accumulate 2"), capsys, workplace)
    assert said == (
        "sddm: A batch has 8 rows, which 3 processes cannot share out evenly in 2 pieces each. Choose a "
        "batch_size that is a multiple of 6.\n"
    )


def no_memory(*arguments, **options):
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000008 bytes.\nAt:")


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [(SamplingConfig, "sample", "sample run --out new.txt"), (evaluate, "bound", "evaluate run --out new.json")],
)
def test_a_batch_too_large_for_the_memory_leaves_nothing(module, name, line, workplace, capsys, monkeypatch):
    monkeypatch.setattr(module, name, no_memory)
    said = refused(shlex.split(line), capsys, workplace)
    assert re.fullmatch(r"sddm: out of memory\. Use a smaller --batch-size.*\.\n", said)


def test_a_fault_of_the_library_is_not_taken_for_a_bad_command(workplace, monkeypatch):
    def fault(*arguments, **options):
        raise RuntimeError("index out of bounds")

    monkeypatch.setattr(evaluate, "bound", fault)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        main(["evaluate", "run"])


def test_lines_shorter_than_those_of_the_training_are_good_data(workplace, capsys):
    main(shlex.split("evaluate run --data shorter.txt --samples 0 --num-times 8"))
    assert "(3 rows)" in capsys.readouterr().out
