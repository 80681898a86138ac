//! What the exporter makes of answers and of time.

use super::{log::Log, *};

/// An exporter whose Collector is nowhere.
async fn exporter() -> (Exporter, Registry, String) {
    let (listener, address) = listen().await;
    drop(listener);
    let endpoint = format!("http://{address}");
    let settings = settings("grpc", &endpoint, &[]);
    let registry = Registry::default();
    let metrics = Metrics::new(&registry);
    let queue = Queue::new(settings.capacity, settings.batching, metrics.clone());
    let client = connect(settings).unwrap_or_else(|error| panic!("{error}"));
    let rejections = Rejections::default();
    (Exporter { client, stored: None, queue, metrics, outage: None, rejections }, registry, endpoint)
}

#[tokio::test]
async fn rejected_spans_are_summed_and_warned_of_once_a_minute() {
    let (mut exporter, registry, endpoint) = exporter().await;
    let log = Log::start();
    for rejected in [0, 3, 2, 5] {
        exporter.accepted(13, rejected, "too old");
    }
    assert_eq!(log.take(), [format!("{endpoint} rejects 3 spans: too old")]);
    exporter.rejections.warned = a_minute_ago();
    exporter.accepted(13, 0, "");
    assert!(log.take().is_empty(), "nothing is rejected");
    exporter.accepted(13, 1, "too new");
    assert_eq!(log.take(), [format!("{endpoint} rejects 8 spans: too new")]);
    assert_eq!(lost(&registry), [("export_rejected", 11)]);
}

#[tokio::test]
async fn an_outage_is_warned_of_once_a_minute_and_its_end_says_what_was_lost() {
    let (mut exporter, registry, endpoint) = exporter().await;
    let log = Log::start();
    let cannot =
        |reason, lost| [format!("cannot export to {endpoint}: {reason}; 0 spans wait, {lost} are lost")];
    exporter.refused(2, "not allowed");
    exporter.fails("down", 0);
    exporter.refused(3, "not allowed");
    assert_eq!(log.take(), cannot("not allowed", 2));
    exporter.outage.as_mut().expect("it fails").warned = a_minute_ago();
    exporter.fails("still down", 0);
    assert_eq!(log.take(), cannot("still down", 5));
    exporter.accepted(13, 0, "");
    exporter.accepted(13, 0, "");
    assert_eq!(log.take(), [format!("the export to {endpoint} works again; 5 spans were lost")]);
    exporter.fails("down", 0);
    assert_eq!(log.take(), cannot("down", 0), "another outage");
    assert_eq!(lost(&registry), [("export_failed", 5)]);
}

#[tokio::test]
async fn a_pause_is_not_shorter_than_the_least_even_if_the_collector_asks_for_none() {
    let (exporter, ..) = exporter().await;
    let start = Instant::now();
    assert!(exporter.pause(Some(Duration::ZERO)).await);
    assert!(start.elapsed() >= FIRST_PAUSE / 2);
}

#[tokio::test]
async fn after_the_shutdown_a_pause_of_our_own_has_the_length_of_the_first_one() {
    let (mut exporter, ..) = exporter().await;
    exporter.outage = Some(Outage { warned: None, tries: 100, lost: 0 });
    exporter.queue.close();
    let start = Instant::now();
    assert!(exporter.pause(None).await);
    assert!(start.elapsed() >= FIRST_PAUSE);
}

#[tokio::test]
async fn a_pause_that_ends_ten_seconds_after_the_shutdown_has_no_try_behind_it() {
    for (asked, in_time) in [(FIRST_PAUSE, true), (LAST_TRIES, false), (2 * LAST_TRIES, false)] {
        let (exporter, ..) = exporter().await;
        exporter.queue.close();
        assert_eq!(exporter.pause(Some(asked)).await, in_time, "{asked:?}");
    }
}

#[tokio::test]
async fn an_output_has_ended_when_its_task_has() {
    let metrics = Metrics::new(&Registry::default());
    let settings = settings("grpc", "http://localhost:4317", &[]);
    let mut sink = Sink::start(settings, &spool::Options::default(), &metrics).unwrap();
    assert!(!sink.has_ended());
    sink.queue.close();
    (&mut sink.task).await.unwrap();
    assert!(sink.has_ended());
}
