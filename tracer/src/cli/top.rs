//! `schedspan top`: live figures of schedulers.

use std::{
    io::{self, IsTerminal as _},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use kube_scheduler::{
    explain::{self, Report},
    last_minute::LastMinute,
};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use reach::{Output, Reach};
use spans::{export::Style, screen, text::clean};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use top::{
    View,
    keys::{Explained, Keys, Page, Wish},
};

use super::explain::report;

/// Interval of the requests to the daemon.
const REFRESH: Duration = Duration::from_secs(1);

/// Columns of a table with `--output wide`.
const WIDE: u16 = 250;
/// Path of the daemon's answer.
const TOP: &str = "/api/v1/top";

/// Options of `top`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Print one table, in this format
    #[arg(long, short, value_enum)]
    output: Option<Output>,
    #[command(flatten)]
    reach: reach::Options,
}

/// Events of the screen's loop.
enum News {
    LastMinute(Result<LastMinute>),
    Explained(Result<Report>),
    Key(KeyCode, KeyModifiers),
    /// The terminal's size has changed.
    Resized,
    /// The keyboard cannot be read any more.
    Gone,
}

/// Runs the command.
///
/// # Errors
///
/// When the first request to the daemon fails, or the terminal cannot be written to.
pub async fn run(options: Options) -> Result<()> {
    let Options { output, reach } = options;
    let mut reach = Reach::of(&reach, super::is_plugin()).await?;
    let server = reach.place();
    // Asks before the screen is taken over, so that an error stays readable.
    let recent = last_minute(&mut reach).await?;
    if output.is_none() && screen::is_terminal() && io::stdin().is_terminal() {
        return live(reach, &server, recent).await;
    }
    let output = output.unwrap_or_default();
    let width = output.width(Style::of_stdout().width, usize::from(u16::MAX));
    let view =
        View { recent: Some(&recent), server: &server, trouble: None, keys: &Keys::default(), live: false };
    let text = || view.text(u16::try_from(width).unwrap_or(u16::MAX).min(WIDE));
    output.print(&recent, text, &[])
}

/// The figures of the leader's scheduler, or of all if the leader is not known.
async fn last_minute(reach: &mut Reach) -> Result<LastMinute> {
    let tables = reach.ask(TOP, &[], |_: &LastMinute| true).await?;
    LastMinute::merged(tables).context("no daemon answers")
}

async fn live(reach: Reach, server: &str, first: LastMinute) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (sender, mut news) = mpsc::channel(16);
    let (wish, wishes) = mpsc::channel(1);
    tokio::spawn(ask(reach, sender.clone(), wishes));
    // Restores the terminal in a panic as well.
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    // Reading keys blocks: it has a thread of its own, which ends with the process.
    thread::spawn(move || read_keys(&sender));
    let (mut recent, mut trouble, mut keys) = (first, None::<String>, Keys::default());
    let result = loop {
        let view =
            View { recent: Some(&recent), server, trouble: trouble.as_deref(), keys: &keys, live: true };
        if let Err(error) = terminal.draw(|frame| frame.render_widget(&view, frame.area())) {
            break Err(error).context("cannot write to the terminal");
        }
        let next = tokio::select! {
            next = news.recv() => next,
            _ = terminate.recv() => None,
            _ = hang_up.recv() => None,
        };
        match next {
            Some(News::LastMinute(Ok(newest))) => (recent, trouble) = (newest, None),
            Some(News::LastMinute(Err(error))) => trouble = Some(error.to_string()),
            Some(News::Explained(Ok(report))) => {
                let width = Style::of_stdout().width;
                let known = report.is_known();
                let text =
                    if known { explain::text(&report, width) } else { clean(&explain::unknown(&report)) };
                let waterfall = explain::waterfall(&report, width);
                keys.page = Some(Page::Pod(Explained { text, waterfall, ..Explained::default() }));
            }
            Some(News::Explained(Err(error))) => trouble = Some(error.to_string()),
            Some(News::Key(key, modifiers)) => match keys.press(key, modifiers, &recent) {
                Wish::Draw => {}
                Wish::Quit => break Ok(()),
                // Ignored: the last wish is still being answered.
                Wish::Explain(namespace, pod) => drop(wish.try_send((namespace, pod))),
            },
            Some(News::Resized) => {}
            Some(News::Gone) | None => break Ok(()),
        }
    };
    ratatui::try_restore().context("cannot restore the terminal")?;
    result
}

async fn ask(mut reach: Reach, news: mpsc::Sender<News>, mut wishes: mpsc::Receiver<(String, String)>) {
    let mut tick = interval(REFRESH);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = tokio::select! {
            _ = tick.tick() => News::LastMinute(last_minute(&mut reach).await),
            Some((namespace, pod)) = wishes.recv() => News::Explained(report(&mut reach, &namespace, &pod, false).await),
        };
        if news.send(next).await.is_err() {
            return;
        }
    }
}

fn read_keys(news: &mpsc::Sender<News>) {
    loop {
        let next = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => News::Key(key.code, key.modifiers),
            Ok(Event::Resize(..)) => News::Resized,
            Ok(_) => continue,
            Err(_) => News::Gone,
        };
        let gone = matches!(next, News::Gone);
        if news.blocking_send(next).is_err() || gone {
            return;
        }
    }
}
