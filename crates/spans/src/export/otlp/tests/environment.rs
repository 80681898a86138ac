//! What the environment says. A process has one environment, so each case is a process.

use tokio::process::Command;

use super::*;

/// What the try of a case says.
const SAYS: &str = "SCHEDSPAN_TEST_SAYS";

#[tokio::test]
async fn a_try_by_the_environment_arrives_or_says_what_to_do_or_is_disabled() {
    if let Some(says) = variable(SAYS) {
        let said = match try_once().await {
            Ok(None) => "disabled".to_owned(),
            Ok(Some(endpoint)) => endpoint,
            Err(reason) => reason,
        };
        assert!(said.starts_with(&says), "{said}");
        return;
    }
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
        let run = Command::new(std::env::current_exe().unwrap())
            .arg("a_try_by_the_environment_arrives_or_says_what_to_do_or_is_disabled")
            .env_clear()
            .envs([
                ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                (SAYS, &says),
                (variable, &value),
            ])
            .output();
        let output = String::from_utf8(run.await.unwrap().stdout).unwrap();
        assert!(output.contains("1 passed"), "{variable}={value}: {output}");
    }
}
