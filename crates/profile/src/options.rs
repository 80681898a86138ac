//! The command line of a profile.

use std::{
    fs,
    io::{self, Write as _, stdout},
    path::PathBuf,
    time::Duration,
};

use spans::{figures::parse_duration, screen};

use crate::{By, Error, Groups, Taken, difference, flame, pprof, read, text};

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
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "base")]
    pub by: Option<By>,
    /// Show what has changed since this profile, which `-o pprof` wrote
    #[arg(long, value_name = "FILE")]
    base: Option<PathBuf>,
    /// Show this profile, which `-o pprof` wrote, instead of taking one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["duration", "hz", "by"])]
    from: Option<PathBuf>,
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

/// Earlier profiles.
#[derive(Debug)]
pub struct Earlier {
    /// The one to compare with.
    pub base: Option<Taken>,
    /// The one to show.
    pub from: Option<Taken>,
}

impl Options {
    /// Reads the earlier profiles.
    ///
    /// # Errors
    ///
    /// When one cannot be read, or the form has no differences.
    pub fn earlier(&self) -> Result<Earlier, Error> {
        if self.base.is_some() && self.output == Form::Pprof {
            return Err(Error::Difference);
        }
        let read = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        Ok(Earlier { base: read(&self.base)?, from: read(&self.from)? })
    }

    /// Writes a profile in the form that is asked for, to the file or to standard output.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn write(&self, taken: &Taken, base: Option<&Taken>) -> io::Result<()> {
        let bytes = match (self.output, base) {
            (Form::Text, None) => text(taken).into_bytes(),
            (Form::Text, Some(base)) => difference(taken, base).into_bytes(),
            (Form::Flame, base) => flame(taken, base).into_bytes(),
            (Form::Pprof, _) => pprof(taken),
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Result<Options, String> {
        let parsed = Command::try_parse_from(["profile"].into_iter().chain(line.split_whitespace()));
        parsed.map(|Command { options }| options).map_err(|error| error.kind().to_string())
    }

    #[test]
    fn pprof_itself_makes_the_difference_of_two_files() {
        let options = parse("--base a.pb.gz -o pprof").expect("it is valid");
        let says = options.earlier().expect_err("there is no such form").to_string();
        assert_eq!(
            says,
            "`go tool pprof -base FILE NEW` makes the difference of two profiles: write this one without --base"
        );
    }

    #[test]
    fn what_is_not_done_together_is_refused() {
        for line in
            ["--by result --base a", "--by result --from a", "--from a --hz 9", "--from a --duration 9s"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("--from a --base b").is_ok());
        assert_eq!(parse("--by profile").map(|options| options.by), Ok(Some(By::Profile)));
    }
}
