"""Compare versions of a job, by the rules under which its query was changed."""

from __future__ import annotations

from everfold.compat import CompatOptions, Judgement, judge_pairs, pair_queries
from everfold.jobs.manifest import Manifest, Version

_BY_STRICTNESS = (
    CompatOptions(),
    CompatOptions(extended=True),
    CompatOptions(ignore_filter=True),
    CompatOptions(extended=True, ignore_filter=True),
)


def judge_versions(manifest: Manifest, old: Version, new: Version) -> Judgement:
    """Judge the change from one version of a job to another.

    The rules are those under which the job was changed between them. Where an earlier release did
    not record them, they are the strictest ones that allow the change.
    """
    pairs = pair_queries(old.query_shapes, new.query_shapes)
    between = [version for version, _ in manifest.lineage(new) if version.number > old.number]
    recorded = [version for version in between if version.rules]
    if recorded:
        options = CompatOptions(
            extended=any(version.rules == "extended" for version in recorded),
            ignore_filter=any(version.ignores_filters for version in recorded),
        )
        return judge_pairs(pairs, options, is_history=True)
    judgements = [judge_pairs(pairs, options, is_history=bool(between)) for options in _BY_STRICTNESS]
    return next((judgement for judgement in judgements if judgement.verdict.reuses_state), judgements[0])
