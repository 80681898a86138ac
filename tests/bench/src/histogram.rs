//! A histogram of the scheduler's metrics over a period.
use harness::metrics::Metrics;

/// The duration of all attempts until their result.
const ATTEMPT: &str = "scheduler_scheduling_attempt_duration_seconds_bucket";

/// The buckets' upper bounds, and the cumulative counts.
pub(super) struct Histogram {
    buckets: Vec<(f64, f64)>,
}

/// The durations of attempts between two readings.
pub(super) fn between(before: &Metrics, after: &Metrics) -> Histogram {
    let before = before.by(ATTEMPT, ["le"]);
    let increase = |(edge, after): (&[String; 1], &f64)| {
        let increase = after - before.get(edge).copied().unwrap_or_default();
        Some((edge[0].parse().ok()?, increase))
    };
    let mut buckets: Vec<_> = after.by(ATTEMPT, ["le"]).iter().filter_map(increase).collect();
    buckets.sort_by(|a, b| f64::total_cmp(&a.0, &b.0));
    Histogram { buckets }
}

impl Histogram {
    /// Like PromQL's `histogram_quantile`, linear within a bucket. 0 without attempts.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        let Some((_, all)) = self.buckets.last().filter(|(_, all)| *all > 0.0) else { return 0.0 };
        let rank = quantile * all;
        let index = self.buckets.iter().position(|(_, count)| *count >= rank).unwrap_or_default();
        let (low, below) = index.checked_sub(1).map_or((0.0, 0.0), |index| self.buckets[index]);
        let (high, count) = self.buckets[index];
        // There is no estimate above the highest bound.
        if high.is_infinite() { low } else { low + (high - low) * (rank - below) / (count - below).max(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(counts: [u32; 3]) -> Metrics {
        let edges = ["0.001", "0.002", "+Inf"];
        let lines =
            edges.iter().zip(counts).map(|(edge, count)| format!("{ATTEMPT}{{le=\"{edge}\"}} {count}\n"));
        Metrics::parse(&lines.collect::<String>()).unwrap()
    }

    #[test]
    fn quantiles_cover_the_period_between_the_readings() {
        let histogram = between(&metrics([100, 100, 100]), &metrics([110, 120, 120]));
        assert!((histogram.quantile(0.25) - 0.0005).abs() < 1e-9);
        assert!((histogram.quantile(0.75) - 0.0015).abs() < 1e-9);
        assert!((histogram.quantile(1.0) - 0.002).abs() < 1e-9);
    }

    #[test]
    fn the_highest_bound_limits_quantiles_and_an_empty_period_has_zero() {
        assert_eq!(between(&metrics([0, 0, 0]), &metrics([0, 0, 5])).quantile(0.5), 0.002);
        assert_eq!(between(&metrics([1, 1, 1]), &metrics([1, 1, 1])).quantile(0.5), 0.0);
    }
}
