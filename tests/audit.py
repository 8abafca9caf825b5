"""Ask for known holes in locked packages, and say so where nobody answers.

Example: python tests/audit.py pip-audit locks/demo.txt
"""

import json
import subprocess
import sys


def judge(lock: str, code: int, out: str, err: str) -> tuple[int, str]:
    """0 and a line if all is well, 1 with the holes, 2 where packages were not looked up."""
    try:
        packages = json.loads(out)["dependencies"]
    except ValueError:
        reason = (err.strip().splitlines() or ["no answer"])[-1]
        return 2, f"{lock}: NOT AUDITED, is there a network? {reason}"
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    holes = [
        f"{lock}: {package['name']} {package['version']}: {hole['id']}, "
        f"fixed in {', '.join(hole['fix_versions']) or 'no version yet'}"
        for package in packages
        for hole in package.get("vulns", [])
    ]
    if holes:
        return 1, "\n".join(holes)
    if skipped or code != 0:
        what = f"NOT AUDITED, {len(skipped)} of {len(packages)} packages were not found"
        return 2, f"{lock}: {what}; the package index here may lack its database of holes"
    return 0, f"{lock}: {len(packages)} packages, no known holes"


def main(program: str, *locks: str) -> int:
    """Audit every lock; the worst of their exit codes."""
    worst = 0
    for lock in locks:
        command = [program, "--format", "json", "--progress-spinner", "off"]
        command += ["--disable-pip", "--require-hashes", "-r", lock]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        code, text = judge(lock, done.returncode, done.stdout, done.stderr)
        print(text)
        worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
