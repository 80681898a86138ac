-- Five questions to the schedulers of a fleet, to the table that the Collector's ClickHouse exporter makes. Attributes are text there.
-- Take what you need: each stands alone.

-- 1. Which plugins reject the most Pods, in which cluster, and which messages stand behind it?
SELECT
    ResourceAttributes['k8s.cluster.name'] AS cluster,
    splitByString(': ', arrayJoin(JSONExtract(SpanAttributes['k8s.scheduler.rejections'], 'Array(String)')))[1] AS plugin,
    count() AS attempts,
    uniqExact(SpanAttributes['k8s.pod.uid']) AS pods,
    any(StatusMessage) AS example
FROM otel_traces
WHERE SpanName = 'SchedulePod' AND mapContains(SpanAttributes, 'k8s.scheduler.rejections')
GROUP BY cluster, plugin
ORDER BY pods DESC, attempts DESC
LIMIT 10;

-- 2. Where does the time of successful attempts go? Median and 99th percentile of each phase, milliseconds.
SELECT
    SpanName AS phase,
    count() AS calls,
    round(quantileExact(0.5)(Duration) / 1e6, 3) AS p50_ms,
    round(quantileExact(0.99)(Duration) / 1e6, 3) AS p99_ms,
    round(100 * sum(Duration) / sum(sum(Duration)) OVER (), 1) AS percent
FROM otel_traces
WHERE mapContains(SpanAttributes, 'k8s.scheduler.phase') AND SpanAttributes['k8s.scheduler.result'] = 'Success'
GROUP BY phase
ORDER BY sum(Duration) DESC;

-- 3. Which Pods needed the most attempts, and how long after they were first ready to be scheduled were they bound?
SELECT
    SpanAttributes['k8s.namespace.name'] AS namespace,
    SpanAttributes['k8s.pod.name'] AS pod,
    max(toUInt64OrZero(SpanAttributes['k8s.scheduler.attempt'])) AS attempts,
    round(max(toFloat64OrZero(SpanAttributes['k8s.scheduler.queue.since_first_attempt_ms'])) / 1e3, 3) AS seconds,
    argMax(SpanAttributes['k8s.scheduler.result'], Timestamp) AS last
FROM otel_traces
WHERE SpanName = 'SchedulePod'
GROUP BY namespace, pod, SpanAttributes['k8s.pod.uid']
ORDER BY attempts DESC, seconds DESC
LIMIT 10;

-- 4. Which plugins are slow, at which extension point, and did a release of the scheduler make them slower?
SELECT
    ResourceAttributes['k8s.scheduler.version'] AS version,
    SpanAttributes['k8s.scheduler.plugin.name'] AS plugin,
    SpanAttributes['k8s.scheduler.plugin.extension_point'] AS point,
    count() AS calls,
    round(quantileExact(0.99)(Duration) / 1e3, 1) AS p99_us
FROM otel_traces
WHERE mapContains(SpanAttributes, 'k8s.scheduler.plugin.name') AND SpanName LIKE 'plugin: %'
GROUP BY version, plugin, point
ORDER BY p99_us DESC
LIMIT 20;

-- 5. Attempts per minute and scheduler by result: which scheduler does the work, and when did failures begin?
SELECT
    toStartOfMinute(Timestamp) AS minute,
    ResourceAttributes['host.name'] AS host,
    SpanAttributes['k8s.scheduler.profile'] AS profile,
    countIf(SpanAttributes['k8s.scheduler.result'] = 'Success') AS bound,
    countIf(SpanAttributes['k8s.scheduler.result'] = 'Unschedulable') AS unschedulable,
    countIf(SpanAttributes['k8s.scheduler.result'] NOT IN ('Success', 'Unschedulable')) AS other
FROM otel_traces
WHERE SpanName = 'SchedulePod'
GROUP BY minute, host, profile
ORDER BY minute, host, profile;
