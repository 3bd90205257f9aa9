#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run the tests that load BPF programs; they need root."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import runner

if __name__ == "__main__":
    sys.exit(runner.main(HERE, sys.argv[1:]))
