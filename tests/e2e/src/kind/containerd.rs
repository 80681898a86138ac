//! The calls of the container runtime by containerd's own log, to the nanosecond.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use harness::spans::Span;
use jiff::Timestamp;

use super::{
    cluster::{Cluster, WORKER},
    native::Distances,
};

/// How the lines of a call begin:
/// <https://github.com/containerd/containerd/blob/v1.6.20/pkg/cri/server/instrumented_service.go>.
const CALLS: [(&str, &str); 4] = [
    ("RunPodSandbox", "RunPodSandbox for "),
    ("CreateContainer", "CreateContainer within sandbox "),
    ("StartContainer", "StartContainer for "),
    ("PullImage", "PullImage "),
];

/// A call in the log.
#[derive(Debug, PartialEq)]
pub(super) struct Logged {
    call: &'static str,
    /// Of the sandbox or container, or the name of the image; empty if there is none, because the call failed.
    id: String,
    /// When it began and ended, nanoseconds since the Unix epoch.
    times: [u64; 2],
}

/// The calls on the worker since a moment, in nanoseconds since the Unix epoch.
pub(super) fn log(cluster: &Cluster, since: u64) -> Result<Vec<Logged>> {
    let since = format!("--since=@{}", since / 1_000_000_000);
    let arguments = ["journalctl", "--unit=containerd", "--no-pager", "--quiet", "--output=cat", &since];
    Ok(calls(&cluster.on_node(WORKER, &arguments)?))
}

fn calls(log: &str) -> Vec<Logged> {
    let mut begun = BTreeMap::<_, Vec<u64>>::new();
    let mut calls = Vec::new();
    for (unix_ns, message) in log.lines().filter_map(read) {
        let known = CALLS.iter().find_map(|(call, start)| Some((*call, message.strip_prefix(start)?)));
        let Some((call, rest)) = known else { continue };
        let failed = || rest.strip_suffix(" failed, error").or_else(|| rest.strip_suffix(" failed"));
        let ended = rest.split_once(" returns ").or_else(|| Some((failed()?, "")));
        let Some((about, made)) = ended else {
            // That of a creation has a word more than its end.
            let about = rest.replace("\" for container ", "\" for ");
            begun.entry((call, about)).or_default().push(unix_ns);
            continue;
        };
        let id = match call {
            "StartContainer" | "PullImage" => about.trim_matches('"'),
            _ => made.split('"').nth(1).unwrap_or_default(),
        };
        let starts = begun.get_mut(&(call, about.to_owned())).filter(|starts| !starts.is_empty());
        if let Some(starts) = starts {
            calls.push(Logged { call, id: id.to_owned(), times: [starts.remove(0), unix_ns] });
        }
    }
    calls
}

/// The time and the message of a line: `time="2026-11-27T02:34:22.123456789Z" level=info msg="..."`.
fn read(line: &str) -> Option<(u64, String)> {
    let (time, _) = line.strip_prefix("time=\"")?.split_once('"')?;
    let (_, quoted) = line.split_once(" msg=\"")?;
    let (mut message, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((unix_ns(time)?, message)),
            '\\' => message.push(chars.next()?),
            char => message.push(char),
        }
    }
}

fn unix_ns(time: &str) -> Option<u64> {
    // The node has no other time zone.
    let time: Timestamp = time.ends_with('Z').then(|| time.parse().ok())??;
    u64::try_from(time.as_nanosecond()).ok()
}

/// Checks that each of these spans has containerd's call within it, and says by how much it is longer.
pub(super) fn within(spans: &[&Span], logged: &[Logged]) -> Result<String> {
    let mut distances = Distances::default();
    for span in spans {
        let id = span.attribute(match &*span.name {
            "RunPodSandbox" => "k8s.pod.sandbox.id",
            "PullImage" => "container.image.name",
            _ => "container.id",
        });
        let own = [span.start_time_unix_nano, span.end_time_unix_nano];
        let same: Vec<_> = logged.iter().filter(|call| call.call == span.name && call.id == id).collect();
        let inside = same.iter().find(|call| own[0] <= call.times[0] && call.times[1] <= own[1]);
        let Some(inside) = inside else {
            bail!("{} of {id:?} is {own:?}, and containerd's log has none within it but {same:?}", span.name)
        };
        distances.add(own, inside.times);
    }
    Ok(format!("containerd's {distances}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"
time="2026-11-27T02:34:22.000000001Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:shop-1,Uid:u,Namespace:default,Attempt:0,}"
time="2026-11-27T02:34:22.100000000Z" level=info msg="shim disconnected" id=f
time="2026-11-27T02:34:22.200000000Z" level=info msg="RunPodSandbox for &PodSandboxMetadata{Name:shop-1,Uid:u,Namespace:default,Attempt:0,} returns sandbox id \"s\""
time="2026-11-27T02:34:22.300000000Z" level=info msg="CreateContainer within sandbox \"s\" for container &ContainerMetadata{Name:web,Attempt:0,}"
time="2026-11-27T02:34:22.300000001Z" level=info msg="CreateContainer within sandbox \"s\" for container &ContainerMetadata{Name:main,Attempt:0,}"
time="2026-11-27T02:34:22.400000000Z" level=info msg="CreateContainer within sandbox \"s\" for &ContainerMetadata{Name:web,Attempt:0,} returns container id \"c\""
time="2026-11-27T02:34:22.400000001Z" level=error msg="CreateContainer within sandbox \"s\" for &ContainerMetadata{Name:main,Attempt:0,} failed" error="no space"
time="2026-11-27T02:34:22.500000000Z" level=info msg="StartContainer for \"c\""
time="2026-11-27T02:34:22.600000000Z" level=info msg="StartContainer for \"c\" returns successfully"
time="2026-11-27T02:34:22.700000000Z" level=info msg="PullImage \"registry.test/missing:1\""
time="2026-11-27T02:34:23.700000000Z" level=error msg="PullImage \"registry.test/missing:1\" failed" error="no \"such\" host"
time="2026-11-27T02:34:23.800000000Z" level=info msg="StartContainer for \"d\" returns successfully"
-- Boot --
"#;
    const SECOND: u64 = 1_795_746_862_000_000_000;

    fn logged(call: &'static str, id: &str, times: [u64; 2]) -> Logged {
        Logged { call, id: id.to_owned(), times: times.map(|ns| SECOND + ns) }
    }

    #[test]
    fn each_call_has_its_id_and_both_times() {
        assert_eq!(
            calls(LOG),
            [
                logged("RunPodSandbox", "s", [1, 200_000_000]),
                logged("CreateContainer", "c", [300_000_000, 400_000_000]),
                logged("CreateContainer", "", [300_000_001, 400_000_001]),
                logged("StartContainer", "c", [500_000_000, 600_000_000]),
                logged("PullImage", "registry.test/missing:1", [700_000_000, 1_700_000_000]),
            ]
        );
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(unix_ns("1970-01-01T00:00:00.000000007Z"), Some(7));
        assert_eq!(unix_ns("2024-02-29T23:59:59.999999999Z"), Some(1_709_251_199_999_999_999));
        assert_eq!(unix_ns("2024-03-01T00:00:00.000000000Z"), Some(1_709_251_200_000_000_000));
        for other in ["2026-11-27T02:34:22.123+01:00", "2026-11-27", "1969-12-31T00:00:00.0Z", ""] {
            assert_eq!(unix_ns(other), None, "{other}");
        }
    }

    #[test]
    fn a_call_that_is_not_within_its_span_is_an_error() {
        let span = |times: [u64; 2]| {
            let mut span = Span::default();
            span.name = "RunPodSandbox".into();
            [span.start_time_unix_nano, span.end_time_unix_nano] = times.map(|ns| SECOND + ns);
            span
        };
        let logged = [logged("RunPodSandbox", "", [10, 20])];
        assert!(within(&[&span([10, 20])], &logged).is_ok());
        for times in [[11, 20], [10, 19], [30, 40]] {
            assert!(within(&[&span(times)], &logged).is_err(), "{times:?}");
        }
    }
}
