//! Replaces names by pseudonyms.

use std::{borrow::Cow, collections::HashMap, marker::PhantomData, path::PathBuf};

use super::Line;
use crate::{pipeline::Found, program::Program};

/// Replaces names by pseudonyms, which are stable within a file. The program defines which values are names.
#[derive(Debug)]
pub(super) struct Redactor<P> {
    /// Numbers of pseudonyms, by kind and name.
    known: HashMap<(&'static str, String), usize>,
    /// Number of pseudonyms of a kind.
    count: HashMap<&'static str, usize>,
    program: PhantomData<P>,
}

impl<P> Default for Redactor<P> {
    fn default() -> Self {
        Self { known: HashMap::new(), count: HashMap::new(), program: PhantomData }
    }
}

impl<P: Program> Redactor<P> {
    pub(super) fn line<'a>(&mut self, line: Line<'a, P>) -> Line<'a, P> {
        match line {
            Line::Found(found) => {
                let executable = PathBuf::from(found.executable.file_name().unwrap_or_default());
                Line::Found(Cow::Owned(Found { executable, ..found.into_owned() }))
            }
            Line::Event(event) => {
                let mut event = event.into_owned();
                P::redact(&mut event.values, &mut |kind, name| self.replace(kind, name));
                Line::Event(Cow::Owned(event))
            }
            // Phases and plugins are names of functions.
            Line::Sample(_)
            | Line::Window(_)
            | Line::Cut { .. }
            | Line::Header(_)
            | Line::Clocks(_)
            | Line::Gone { .. }
            | Line::End(_) => line,
        }
    }

    /// An empty name is kept: it reveals nothing, and has a meaning.
    fn replace(&mut self, kind: &'static str, name: &mut String) {
        if name.is_empty() {
            return;
        }
        let count = self.count.entry(kind).or_default();
        let number = *self.known.entry((kind, std::mem::take(name))).or_insert_with(|| {
            *count += 1;
            *count
        });
        *name = format!("{kind}-{number}");
    }
}
