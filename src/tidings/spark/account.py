"""The account step: delivery logs folded into what was earned, what came in time, how long it took; and links measured.

A delivery log is a table of account records (`model/step.py`): event, subscription, account, reason, broker, age_s, earning, and
where known the event's type and the time `at`. A pipeline's own folder is one too: what the schedule let expire is recorded
there, and what was sent counts as delivered when its batch was handed over.

TotalEarning = sum price*na - sum penalty*(ni - na), success rate = sum na / sum ni (mtep, section 3).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidings.broker.ledger import Account
from tidings.errors import InvalidInput
from tidings.spark.journal import Journal
from tidings.spark.place import Place
from tidings.spark.stream import committed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD = {
    "event": "string",
    "subscription": "string",
    "account": "string",
    "reason": "string",
    "broker": "string",
    "age_s": "double",
    "earning": "double",
    "type": "string",
    "at": "timestamp",
}
GROUPS = ("type", "subscription", "broker", "reason", "window")
PERCENTILES = (0.5, 0.9, 0.99)
_NEEDED = ("event", "subscription", "account", "earning")


def records(log: "DataFrame") -> "DataFrame":
    """A delivery log in the one shape; InvalidInput if it cannot be one."""
    missing = [name for name in _NEEDED if name not in log.columns]
    if missing:
        raise InvalidInput(f"no delivery log: it has no column {', '.join(missing)}, only {', '.join(log.columns)}")
    return log.select(
        *((F.col(name) if name in log.columns else F.lit(None)).cast(kind).alias(name) for name, kind in RECORD.items())
    )


def of_pipeline(spark: "SparkSession", out: str) -> "DataFrame":
    """The account of every matched pair of a pipeline: what expired, and what was sent, in time or late."""
    parts = []
    expired = committed(spark, out, "accounts")
    if expired is not None:
        parts.append(records(expired))
    sent = committed(spark, out)
    if sent is not None:
        parts.append(_delivered(spark, out, sent))
    if not parts:
        return spark.createDataFrame([], ", ".join(f"{name} {kind}" for name, kind in RECORD.items()))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def _delivered(spark: "SparkSession", out: str, sent: "DataFrame") -> "DataFrame":
    if "subscriptions" in sent.columns:
        pairs = F.arrays_zip("subscriptions", "dl", "price", "penalty")
        sent = sent.drop("success").withColumn("pair", F.explode(pairs)).drop("subscriptions", "dl", "price", "penalty")
        sent = sent.select(
            "*", F.col("pair.subscriptions").alias("subscription"), "pair.dl", "pair.price", "pair.penalty"
        )
    handed = [(commit.batch, commit.delivered_us) for commit in Journal(Place(out)).commits()]
    times = spark.createDataFrame(handed, "batch int, delivered_us long")
    sent = sent.join(F.broadcast(times), "batch")
    delivered = F.timestamp_micros("delivered_us")
    in_time = F.col("dl").isNull() | delivered.isNull() | (delivered <= F.col("dl"))
    born = F.col("timestamp") if "timestamp" in sent.columns else F.lit(None).cast("timestamp")
    return sent.select(
        F.col("event").cast("string").alias("event"),
        F.col("subscription").cast("string").alias("subscription"),
        F.when(in_time, str(Account.ON_TIME)).otherwise(str(Account.LATE)).alias("account"),
        F.lit("").alias("reason"),
        F.col("home").cast("string").alias("broker"),
        F.greatest(F.lit(0.0), (F.col("delivered_us") - F.unix_micros(born)) / 1e6).alias("age_s"),
        F.when(in_time, F.col("price")).otherwise(-F.col("penalty")).alias("earning"),
        F.col("type").cast("string").alias("type"),
        born.alias("at"),
    )


def fold(log: "DataFrame", by: Sequence[str] = (), window: str = "1 minute") -> "DataFrame":
    """One row per group (of GROUPS; in all without): counts, earning, success rate, latency percentiles of what arrived."""
    unknown = [name for name in by if name not in GROUPS]
    if unknown:
        raise InvalidInput(f"by {', '.join(unknown)}: expected some of {', '.join(GROUPS)}")
    groups = [
        F.window("at", window).getField("start").alias("window") if name == "window" else F.col(name) for name in by
    ]
    arrived = F.when(F.col("account").isin(str(Account.ON_TIME), str(Account.LATE)), F.col("age_s"))
    counts = [F.count_if(F.col("account") == str(account)).alias(str(account)) for account in Account]
    latencies = [F.percentile_approx(arrived, share, 10_000).alias(f"p{share * 100:g}_s") for share in PERCENTILES]
    folded = log.groupBy(*groups).agg(
        F.count("*").alias("matched"), *counts, F.sum("earning").alias("earning"), *latencies
    )
    rate = F.try_divide(F.col("on_time"), F.col("on_time") + F.col("late") + F.col("expired") + F.col("undeliverable"))
    return folded.withColumn("success_rate", rate)


def reasons(log: "DataFrame") -> "DataFrame":
    """Why pairs did not arrive in time."""
    return log.where(F.col("reason") != "").groupBy("account", "reason").count().orderBy(F.desc("count"))


def measured_links(hops: "DataFrame") -> "DataFrame":
    """home, mu, sigma, hops, samples: the table that schedulers read, from measured transmissions.

    `hops` has home (or link), size_kb, seconds, and may have hops. A transmission's rate is seconds per KB; mu and sigma are
    its mean and deviation (mtep, section 4: TR ~ N(mu, sigma^2)).
    """
    name = "home" if "home" in hops.columns else "link"
    missing = [column for column in (name, "size_kb", "seconds") if column not in hops.columns]
    if missing:
        raise InvalidInput(f"no measured transmissions: no column {', '.join(missing)}")
    rate = F.col("seconds") / F.col("size_kb")
    far = F.max("hops") if "hops" in hops.columns else F.lit(1.0)
    usable = hops.where((F.col("size_kb") > 0) & (F.col("seconds") >= 0))
    return usable.groupBy(F.col(name).alias("home")).agg(
        F.avg(rate).alias("mu"),
        F.coalesce(F.stddev_samp(rate), F.lit(0.0)).alias("sigma"),
        far.cast(T.DoubleType()).alias("hops"),
        F.count("*").alias("samples"),
    )


def draw(windows: Sequence[dict[str, Any]], path: str) -> None:
    """A picture: accounts and earning over time. `windows` are the rows of `fold(log, ['window'])`, in order."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True, layout="constrained")
    at = range(len(windows))
    bottom = [0] * len(windows)
    colours = {"on_time": "#2a9d5c", "late": "#e9b44c", "expired": "#c8553d", "undeliverable": "#6d6875"}
    for account in Account:
        heights = [int(row[account]) for row in windows]
        above.bar(at, heights, 0.9, bottom, label=account.replace("_", " "), color=colours[account])
        bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
    above.set_ylabel("matched pairs")
    above.legend(frameon=False, ncols=4)
    below.plot(at, [row["earning"] for row in windows], marker="o", color="#22577a", label="earning")
    below.set_ylabel("earning")
    below.set_xticks(list(at), [str(row["window"])[5:16] for row in windows], rotation=30, ha="right")
    figure.savefig(path)
    pyplot.close(figure)
