"""Take the pictures of the landing page, on light and on dark ground, from the report of the demo:

    cantons demo && python docs/picture.py results/demo/report.html
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

SIZE, SHOWN = (1100, 1800), (12, 20, 1088, 1545)  # of the window; left, top, right and bottom of what is kept
SCHEMES = {"light": 1, "dark": 0}


def main(report: Path) -> None:
    for name, scheme in SCHEMES.items():
        with tempfile.TemporaryDirectory() as folder:
            shot = Path(folder) / "shot.png"
            subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                            f"--blink-settings=preferredColorScheme={scheme}", f"--user-data-dir={folder}/profile",
                            f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={shot}",
                            report.resolve().as_uri()], check=True, capture_output=True)
            Image.open(shot).convert("RGB").crop(SHOWN).quantize(256, kmeans=3, dither=Image.Dither.NONE).save(
                Path(__file__).parent / "img" / f"demo_{name}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
