#!/usr/bin/env bash
# up.sh jaeger|tempo|clickhouse: a place for traces and schedspan, on the cluster of kubectl's current context.
set -euo pipefail
cd "$(dirname "$0")"
example=${1:?jaeger, tempo or clickhouse}
kubectl apply --filename "$example"
kubectl --namespace traces rollout status --timeout=300s deployment --selector=example="$example"
helm upgrade --install schedspan ../deploy/chart/schedspan --namespace kube-system --set otlp.endpoint=http://otlp.traces:4317
kubectl --namespace kube-system rollout status --timeout=300s daemonset/schedspan
cat "$example/look.txt"
