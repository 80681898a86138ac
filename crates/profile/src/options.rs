//! The command line of a profile.

use std::{
    fs,
    io::{self, Write as _, stdout},
    path::PathBuf,
    time::Duration,
};

use spans::{figures::parse_duration, screen};

use crate::{By, Groups, Taken, flame, pprof, text};

/// What is taken, and what becomes of it.
#[derive(clap::Args, Debug)]
// A command flattens several structs of this name.
#[group(skip)]
pub struct Options {
    /// Take samples for so long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub duration: Duration,
    /// Samples per second and CPU
    #[arg(long, value_name = "HZ", default_value_t = wire::SAMPLE_HZ, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub hz: u32,
    /// Divide the samples among attempts by this; attaches probes
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<By>,
    /// Form of the profile
    #[arg(long, short, value_enum, default_value_t, value_name = "FORM")]
    output: Form,
    /// File to write; standard output without it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Forms of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// Tables: phases and plugins, then functions
    #[default]
    Text,
    /// A flame graph, as SVG
    Flame,
    /// For `go tool pprof` and Pyroscope
    Pprof,
}

impl Options {
    /// Writes a profile in the form that is asked for, to the file or to standard output.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, taken: &Taken) -> io::Result<()> {
        let bytes = match self.output {
            Form::Text => text(taken).into_bytes(),
            Form::Flame => flame(taken, None).into_bytes(),
            Form::Pprof => pprof(taken),
        };
        if self.output != Form::Text
            && let Some(left_out) = taken.groups.as_ref().and_then(Groups::left_out)
        {
            screen::complain(&format!("schedspan: {left_out}"));
        }
        match (&self.file, String::from_utf8(bytes)) {
            (Some(file), Ok(text)) => fs::write(file, text),
            (Some(file), Err(bytes)) => fs::write(file, bytes.as_bytes()),
            (None, Ok(text)) => screen::print(&text),
            // It holds names of a traced process, and a terminal obeys what is in them.
            (None, Err(_)) if screen::is_terminal() => Err(io::Error::other(
                "a profile for pprof is not for a terminal: redirect standard output, or give --file FILE",
            )),
            (None, Err(bytes)) =>
            {
                #[expect(clippy::disallowed_methods, reason = "a profile for pprof is not text")]
                stdout().write_all(bytes.as_bytes())
            }
        }
    }
}
