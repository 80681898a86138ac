//! The spool between the queue and the Collector: one task moves batches from the queue to the disk, the exporter takes them from
//! there. While the disk cannot be written, batches go to the exporter directly, and the queue holds what it can.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tracing::warn;

use super::{
    WARN_EVERY,
    encode::{Encoded, pack, unpack},
    queue::Queue,
    spool::{Next, Spool},
};
use crate::{Loss, Metrics, wakeups};

/// Pause after the spool could not be read.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A spool that two tasks use. Clones are handles of the same spool.
#[derive(Clone)]
pub(super) struct Store {
    spool: Arc<Mutex<Spool>>,
    /// There is a new entry.
    changed: Arc<Notify>,
    /// When it was last said that the disk fails.
    warned: Arc<Mutex<Option<Instant>>>,
    metrics: Metrics,
}

/// A batch that is not in the spool.
pub(super) struct Direct {
    pub(super) batch: Vec<Encoded>,
    /// To be sent when the batch is settled.
    pub(super) done: oneshot::Sender<()>,
}

/// What is to be sent next.
pub(super) enum Stored {
    /// An entry, to be settled.
    Entry(Vec<Encoded>),
    Direct(Direct),
}

impl Store {
    /// # Errors
    ///
    /// When the spool cannot be used: what to do.
    pub(super) fn open(directory: &Path, limit: u64, metrics: &Metrics) -> Result<Self, String> {
        let spool = Spool::open(directory, limit)?;
        let store = Self {
            spool: Arc::new(Mutex::new(spool)),
            changed: Arc::default(),
            warned: Arc::default(),
            metrics: metrics.clone(),
        };
        store.publish();
        Ok(store)
    }

    /// Starts to move batches from a queue to the spool, until the queue is closed. Those that cannot be written arrive at the
    /// receiver.
    pub(super) fn fill(self, queue: Queue) -> (Self, mpsc::Receiver<Direct>) {
        let (sender, receiver) = mpsc::channel(1);
        let store = self.clone();
        tokio::spawn(async move {
            while let Some(mut batch) = queue.batch().await {
                if let Err(error) = store.append(&mut batch).await {
                    store.fails(&error);
                    let (done, settled) = oneshot::channel();
                    // The receiver goes when there is no time left: the spans are still in the queue's account.
                    if sender.send(Direct { batch, done }).await.is_err() || settled.await.is_err() {
                        return;
                    }
                }
                queue.done();
            }
        });
        (self, receiver)
    }

    async fn append(&self, batch: &mut [Encoded]) -> io::Result<()> {
        let (entry, spans) = pack(batch);
        let spans = u32::try_from(spans).map_err(io::Error::other)?;
        let lost = self.with(move |spool| spool.append(&entry, spans)).await?;
        self.metrics.loss(Loss::SpoolFull, lost);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for the next batch. `None` when all are settled and there will be no more.
    pub(super) async fn next(&self, direct: &mut mpsc::Receiver<Direct>) -> Option<Stored> {
        loop {
            match self.with(Spool::next).await {
                Ok(Next::Entry(entry)) => match unpack(&entry) {
                    Some(batch) => return Some(Stored::Entry(batch)),
                    // Its checksum is right: another program wrote it.
                    None => {
                        self.damaged("an entry of another program", 0);
                        self.settle().await;
                    }
                },
                Ok(Next::Damaged { place, spans }) => self.damaged(&place, spans),
                Ok(Next::Nothing) => tokio::select! {
                    () = self.changed.notified() => {}
                    direct = direct.recv() => return direct.map(Stored::Direct),
                },
                Err(error) => {
                    self.fails(&error);
                    tokio::select! {
                        () = sleep(READ_AGAIN) => {}
                        direct = direct.recv() => return direct.map(Stored::Direct),
                    }
                }
            }
        }
    }

    /// Removes the entry that was taken last.
    pub(super) async fn settle(&self) {
        if let Err(error) = self.with(Spool::settle).await {
            self.fails(&error);
        }
    }

    /// Works on the spool where a slow disk delays nothing else.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Spool) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let spool = Arc::clone(&self.spool);
        let work = spawn_blocking(move || work(&mut spool.lock().unwrap_or_else(PoisonError::into_inner)));
        // A batch takes several of these, one after the other.
        let result = wakeups::at_once(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
        self.publish();
        result
    }

    fn publish(&self) {
        let spool = self.spool.lock().unwrap_or_else(PoisonError::into_inner);
        self.metrics.spooled(spool.spans(), spool.bytes());
    }

    fn damaged(&self, place: &str, spans: u64) {
        self.metrics.damaged(spans);
        if self.may_warn() {
            warn!("the spool is damaged: {place}: {spans} spans are lost, the rest is sent");
        }
    }

    fn fails(&self, error: &io::Error) {
        if self.may_warn() {
            warn!(
                "the spool cannot be used: {error}; spans wait in memory; make room on the disk of --spool"
            );
        }
    }

    fn may_warn(&self) -> bool {
        let now = Instant::now();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let may = warned.is_none_or(|warned| now - warned >= WARN_EVERY);
        if may {
            *warned = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use telemetry::Registry;

    use super::{
        super::{
            super::tests::{item, lost},
            spool::tests::Directory,
            tests::{a_minute_ago, gauge, log::Log},
        },
        *,
    };
    use crate::fixtures::scheduled;

    const LIMIT: u64 = 1 << 20;

    fn open(directory: &Directory) -> (Store, Registry) {
        let registry = Registry::default();
        (Store::open(&directory.0, LIMIT, &Metrics::new(&registry)).unwrap(), registry)
    }

    #[tokio::test]
    async fn what_is_damaged_in_the_spool_is_counted_and_warned_of_and_the_rest_is_sent() {
        let directory = Directory::new();
        let item = item(scheduled());
        let (entry, spans) = pack(&mut [Encoded::new(&item.trace, item.resource, &mut 0)]);
        let mut spool = Spool::open(&directory.0, LIMIT).unwrap();
        for entry in [b"of another program", &*entry, &*entry] {
            spool.append(entry, spans as u32).unwrap();
        }
        drop(spool);
        let segment = &directory.segments()[0];
        let mut bytes = fs::read(segment).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(segment, bytes).unwrap();

        let log = Log::start();
        let (store, registry) = open(&directory);
        let (sender, mut direct) = mpsc::channel(1);
        drop(sender);
        let Some(Stored::Entry(batch)) = store.next(&mut direct).await else { panic!("the second is whole") };
        assert_eq!(batch.iter().map(|trace| trace.spans).sum::<u64>(), spans);
        store.settle().await;
        assert!(store.next(&mut direct).await.is_none());
        assert_eq!(lost(&registry), [("spool_damaged", spans)]);
        assert_eq!(gauge(&registry, "export_spool_damaged_total"), 2);
        assert_eq!(gauge(&registry, "export_spool_spans"), 0);
        let text = "the spool is damaged: an entry of another program: 0 spans are lost, the rest is sent";
        assert_eq!(log.take(), [text], "a second warning is too early");
    }

    #[tokio::test]
    async fn a_disk_that_fails_is_warned_of_once_a_minute() {
        let log = Log::start();
        let directory = Directory::new();
        let (store, _) = open(&directory);
        for _ in 0..3 {
            store.fails(&io::Error::other("it is full"));
            store.fails(&io::Error::other("it is still full"));
            let text = "the spool cannot be used: it is full; spans wait in memory; make room on the disk of --spool";
            assert_eq!(log.take(), [text]);
            *store.warned.lock().unwrap() = a_minute_ago();
        }
    }
}
