//! Examples at the end of each `--help`: a command, three spaces or more, and what it does.

pub(super) const ALL: &str = "Examples:
  schedspan doctor                            Can it work here, and if not, why
  schedspan run                               Trace the schedulers of this node; spans go to http://localhost:4317
  schedspan explain -n shop web-0             Why is this Pod Pending, or why is it on its Node
  schedspan replay tests/streams/1.36.jsonl   Attempts of a recording, without a scheduler and without root";

pub(super) const RUN: &str = "Examples:
  schedspan run                                        Spans go to OTEL_EXPORTER_OTLP_ENDPOINT
  schedspan run --keep failed --keep slower-than=p99   Export only failed attempts and the slowest hundredth
  schedspan run --detail phases                        Less than half of the hits: no plugins, queues and Nodes
  schedspan run --lifecycle --context-owners           Pods until Ready, linked to the requests that created their workloads
  schedspan run -o terminal,otlp                       Waterfalls on standard output as well
  schedspan run --trust namespace=second-scheduler     Trace only the schedulers in this namespace";

pub(super) const TRACE: &str = "Examples:
  schedspan trace                              Each attempt as it ends
  schedspan trace -n shop --failed             Failed attempts of one namespace
  schedspan trace 'web-*' --slower-than 10ms   Slow attempts of one workload
  schedspan trace --wide web-0                 A line for each plugin
  schedspan trace -s http://HOST:9091          What a daemon has, without further probes
  schedspan trace --lifecycle 'web-*'          Pods from their creation until Ready";

pub(super) const EXPLAIN: &str = "Examples:
  schedspan explain web-0                       The attempts of default/web-0, and what follows from them
  schedspan explain -n shop web-0 --wait        Wait for the next attempt, and explain it
  schedspan explain -n shop web-0 -o json       The same as data
  schedspan explain web-0 -s http://HOST:9091   Ask another daemon
  schedspan explain web-0 --context prod        Ask the daemon of a cluster's leading scheduler, as `kubectl schedspan` does
  schedspan explain -l app=web --context prod   All Pods with a label";

pub(super) const QUEUE: &str = "Examples:
  schedspan queue -A                      All Pods without a Node, by the reason why they are not tried
  schedspan queue -n shop                 Those of one namespace
  schedspan queue -n shop web-0           One Pod: since when, by which plugins, and what would wake it
  schedspan queue -A -o json              As data";

pub(super) const TOP: &str = "Examples:
  schedspan top                       Live: Enter explains a Pod, / filters, ? shows all keys
  schedspan top -s http://HOST:9091   Ask another daemon";

pub(super) const INSPECT: &str = "Examples:
  schedspan inspect 4711                                 Of a process
  schedspan inspect /usr/local/bin/kube-scheduler        Of a file
  schedspan inspect kube-scheduler --explain preFilter   The machine code around the sites of a function
  schedspan inspect kube-scheduler -o json               As data";

pub(super) const DOCTOR: &str = "Examples:
  schedspan doctor                          With the same variables as `schedspan run`
  schedspan doctor --trust namespace=shop   With other rules for who is traced";

pub(super) const PROFILE: &str = "Examples:
  schedspan profile                                   Phases, plugins and functions of 30 s
  schedspan profile 4711 -o flame --file flame.svg    A flame graph of one process
  schedspan profile --by result                       What attempts cost that succeed, and those that do not
  schedspan profile -o pprof --file schedspan.pb.gz   For `go tool pprof` and Pyroscope
  schedspan profile --base schedspan.pb.gz            What has become more since then, and what less";

pub(super) const RECORD: &str = "Examples:
  schedspan record attempts.jsonl --redact --duration 30s   For a bug report: without names
  schedspan record attempts.jsonl --max-size 64KiB          The first few hundred events
  schedspan record - --pid 4711                             One process, to standard output";

pub(super) const REPLAY: &str = "Examples:
  schedspan replay tests/streams/1.36.jsonl            All attempts as waterfalls
  schedspan replay tests/streams/1.36.jsonl --failed   Failed attempts only
  schedspan replay attempts.jsonl -o json              OTLP lines, which Jaeger's page opens
  schedspan replay attempts.jsonl -o otlp              To the endpoint in OTEL_EXPORTER_OTLP_ENDPOINT";

pub(super) const LIFECYCLE: &str = "Examples:
  schedspan lifecycle -n shop web-0 spans.jsonl               Of spans that a Collector's file exporter wrote
  schedspan lifecycle web-0 schedspan.jsonl apiserver.jsonl   Of several files
  schedspan lifecycle job/once spans.jsonl                    The slowest Pods of a Job, and how many more
  schedspan lifecycle web-0 spans.jsonl -o json               What the time went to, as data";

pub(super) const COMPARE: &str = "Examples:
  schedspan compare outside.jsonl inside.jsonl                          Twins, and how they differ
  schedspan compare both.jsonl both.jsonl --scope-a schedspan           Both sides in one file
  schedspan compare spans.jsonl --metrics metrics.txt --max-missing 0   Spans next to the scheduler's own counters";

pub(super) const WEBHOOK: &str = "Examples:
  schedspan webhook --host schedspan-webhook.kube-system.svc --configuration schedspan-webhook   With certificates of its own
  schedspan webhook --certificate tls.crt --certificate-key tls.key                              With certificates of yours";

pub(super) const UI: &str = "Examples:
  schedspan ui --context prod          Forward a port to the leader's daemon, and print the URL
  schedspan ui --context prod --open   The same in the browser";

pub(super) const TRACED: &str = "Examples:
  schedspan traced -- apply -f web.yaml                       Trace kubectl's requests, and follow the Pods until Ready
  schedspan traced --baggage team=shop -- rollout restart d   With baggage";

pub(super) const COMPLETION: &str = "Examples:
  schedspan completion bash > /etc/bash_completion.d/schedspan   For all users of bash";
