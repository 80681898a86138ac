//! Keeps what is logged.

use std::{
    fmt::Debug,
    mem,
    sync::{Arc, Mutex},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::Field,
    span::{Attributes, Id, Record},
    subscriber::{self, DefaultGuard},
};

/// What this thread logs while this exists, without what is for debugging.
pub(in super::super) struct Log {
    texts: Texts,
    _guard: DefaultGuard,
}

impl Log {
    pub(in super::super) fn start() -> Self {
        let texts = Texts::default();
        Self { _guard: subscriber::set_default(texts.clone()), texts }
    }

    /// The texts since the last call.
    pub(in super::super) fn take(&self) -> Vec<String> {
        mem::take(&mut self.texts.0.lock().unwrap())
    }
}

#[derive(Clone, Default)]
struct Texts(Arc<Mutex<Vec<String>>>);

impl Subscriber for Texts {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "message" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
