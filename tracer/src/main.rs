//! schedspan's command line.

#![forbid(unsafe_code)]

use std::{env, process::ExitCode};

use allocator::Allocator;
use clap::CommandFactory as _;
use gotrace::{foreign, probe};
use kube_scheduler::configuration::reader;
use marked::End;
// Links functions that replace those of the C library.
use mem as _;
use spans::{screen, text::sentence, wakeups};
use tokio::runtime::Builder;
use tracer::cli::{
    self, Cli, Command, compare, doctor, explain, inspect, lifecycle, profile, queue, record, replay, run,
    top, trace, webhook,
};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The answer is no.
const NO: u8 = 1;
/// There is no answer, because something failed.
const FAILED: u8 = 2;
/// `EX_USAGE`: the command line is invalid.
const USAGE: u8 = 64;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    // Runs before other threads exist, since each thread has its own capabilities. A missing one is reported where it
    // is needed.
    let _ = probe::raise();
    if let Some(code) = foreign::serve(env::args_os()).or_else(|| reader::serve(env::args_os())) {
        return code;
    }
    let Cli { command, log } = match Cli::from_command_line() {
        Ok(cli) => cli,
        Err(error) => {
            // Ignored: the terminal may be closed.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let filter = match log.parse::<Targets>() {
        Ok(filter) => filter,
        Err(error) => {
            screen::complain(&format!(
                "schedspan: `--log {log}` is not a log filter: {error}; try `--log info`"
            ));
            return ExitCode::from(USAGE);
        }
    };
    let colour = screen::is_error_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log =
        tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_target(false).with_ansi(colour);
    log.with_writer(|| screen::Log).finish().with(filter).init();
    let result = match command {
        Command::Compare(options) => compare::run(&options),
        Command::Completion(options) => completion::script(&options, Cli::command()).map(done),
        Command::Complete(options) => {
            completion::candidates(&options, &cli::plugin(Cli::command())).map(done)
        }
        Command::Inspect(options) => inspect::run(&options).map(done),
        Command::Lifecycle(options) => lifecycle::run(&options).map(done),
        Command::Run(options) => block_on_throttled(run::run(options)).map(done),
        Command::Trace(options) => block_on_throttled(trace::run(options)).map(done),
        Command::Doctor(options) => block_on(doctor::run(options)),
        Command::Profile(options) => block_on(profile::run(options)).map(done),
        Command::Record(options) => block_on(record::run(options)).map(done),
        Command::Replay(options) => block_on(replay::run(options)).map(done),
        Command::Explain(options) => block_on(explain::run(options)),
        Command::Queue(options) => block_on(queue::run(options)),
        Command::Top(options) => block_on(top::run(options)).map(done),
        Command::Ui(options) => block_on(reach::ui::run(options, cli::is_plugin())).map(done),
        Command::Traced(options) => match block_on(marked::run(options)) {
            Ok(End::Kubectl(status)) => {
                return ExitCode::from(
                    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED),
                );
            }
            Ok(End::Followed(ready)) => Ok(ready),
            Err(error) => Err(error),
        },
        Command::Webhook(options) => block_on(webhook::run(options)).map(done),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NO),
        Err(error) => {
            screen::complain(&format!("schedspan: {}", sentence(error.as_ref())));
            ExitCode::from(FAILED)
        }
    }
}

/// The answer of a verb that has no other than that it is done.
fn done((): ()) -> bool {
    true
}

fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    runtime().build()?.block_on(future)
}

/// Like [`block_on`], with batched wake-ups: for commands that run until they are stopped.
fn block_on_throttled<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    allocator::keep_blocks();
    runtime().on_thread_park(wakeups::throttle).build()?.block_on(future)
}

fn runtime() -> Builder {
    // One thread: tasks wake each other all the time, and across threads a wake-up costs more than the task.
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    builder
}
