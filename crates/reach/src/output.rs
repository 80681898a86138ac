//! Output formats, as kubectl has them.

use anyhow::{Context as _, Result};
use serde::Serialize;
use spans::screen;

/// Output format.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Readable text
    #[default]
    Text,
    /// Readable text without a limit of its width
    Wide,
    /// JSON, with `schemaVersion` where that may change
    Json,
    /// The same as YAML
    Yaml,
    /// Names alone, as `pod/NAME`
    Name,
}

impl Output {
    /// Prints data as JSON or YAML, and else `text`, or `name` for each line.
    ///
    /// # Errors
    ///
    /// When standard output cannot be written to.
    pub fn print(self, data: &impl Serialize, text: impl FnOnce() -> String, names: &[String]) -> Result<()> {
        let printed = match self {
            Self::Json => screen::print_json(&(serde_json::to_string_pretty(data)? + "\n")),
            // Strings with control characters are quoted and escaped, so what is printed is the same document.
            Self::Yaml => screen::print(&serde_saphyr::to_string(data)?),
            Self::Text | Self::Wide => screen::print(&text()),
            Self::Name => screen::print(&names.iter().map(|name| format!("{name}\n")).collect::<String>()),
        };
        printed.context("cannot write to stdout")
    }

    /// Width of text, for a terminal of this width.
    #[must_use]
    pub fn width(self, terminal: usize, most: usize) -> usize {
        match self {
            Self::Wide => usize::from(u16::MAX),
            Self::Text | Self::Json | Self::Yaml | Self::Name => terminal.min(most),
        }
    }
}
