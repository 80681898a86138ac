//! What the environment says. A process has one environment, so each case is a process.

use tokio::task::spawn_blocking;

use super::*;
use crate::screen::tests::child;

/// What the try of a case says.
const SAYS: &str = "SCHEDSPAN_TEST_SAYS";

#[tokio::test]
#[ignore = "the next test runs it as a process"]
async fn a_child_tries() {
    let said = match try_once().await {
        Ok(None) => "disabled".to_owned(),
        Ok(Some(endpoint)) => endpoint,
        Err(reason) => reason,
    };
    assert!(said.starts_with(&variable(SAYS).expect("it is set")), "{said}");
}

#[tokio::test]
async fn a_try_by_the_environment_arrives_or_says_what_to_do_or_is_disabled() {
    let Collector { endpoint, .. } = http_collector(listen().await.0, vec![], usize::MAX);
    let (listener, address) = listen().await;
    drop(listener);
    let proxy = |scheme: &str| format!("{scheme}://{address}");
    let fails = |scheme: &str, reason: &str| {
        let proxy = proxy(scheme);
        format!("cannot export to {endpoint}: the proxy {proxy}/ does not connect to it: {reason}")
    };
    for (variable, value, says) in [
        ("OTEL_SDK_DISABLED", "false".to_owned(), endpoint.clone()),
        ("OTEL_SDK_DISABLED", "True".to_owned(), "disabled".to_owned()),
        ("OTEL_TRACES_EXPORTER", "otlp".to_owned(), endpoint.clone()),
        ("OTEL_TRACES_EXPORTER", "none".to_owned(), "disabled".to_owned()),
        ("HTTP_PROXY", proxy("http"), fails("http", "")),
        ("HTTP_PROXY", proxy("https"), fails("https", "only `http://` is supported")),
    ] {
        let (of, endpoint) = (format!("{variable}={value}"), endpoint.clone());
        let run = spawn_blocking(move || {
            let variables = [
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
                (SAYS, &*says),
                (variable, &*value),
            ];
            child("export::otlp::tests::environment::a_child_tries", &variables)
        });
        let output = String::from_utf8(run.await.unwrap().stdout).unwrap();
        assert!(output.contains("1 passed"), "{of}: {output}");
    }
}
