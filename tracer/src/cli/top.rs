//! `schedspan top`: live figures of schedulers.

use std::{
    io::{self, IsTerminal as _},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use spans::{export::Style, screen, text::clean};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::client::{Daemon, Server};
use kube_scheduler::{
    explain::{self, Report},
    last_minute::LastMinute,
};

use crate::top::{
    View,
    keys::{Keys, Page, Wish},
};

/// Interval of the requests to the daemon.
const REFRESH: Duration = Duration::from_secs(1);

/// Options of `top`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    server: Server,
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
    let Options { server } = options;
    let daemon = Daemon::of(&server)?;
    // Asks before the screen is taken over, so that an error stays readable.
    let recent: LastMinute = daemon.ask("/api/v1/top", &[], Duration::ZERO).await?;
    if screen::is_terminal() && io::stdin().is_terminal() {
        return live(daemon, &server.server, recent).await;
    }
    let view = View {
        recent: Some(&recent),
        server: &server.server,
        trouble: None,
        keys: &Keys::default(),
        live: false,
    };
    let width = u16::try_from(Style::of_stdout().width).unwrap_or(u16::MAX);
    screen::print(&view.text(width)).context("cannot write to stdout")
}

async fn live(daemon: Daemon, server: &str, first: LastMinute) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let (sender, mut news) = mpsc::channel(16);
    tokio::spawn(ask(daemon.clone(), sender.clone()));
    let explainer = sender.clone();
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
                let known = !report.attempts.is_empty();
                let text =
                    if known { explain::text(&report, width) } else { clean(&explain::unknown(&report)) };
                keys.page = Some(Page::Explained(text, 0));
            }
            Some(News::Explained(Err(error))) => trouble = Some(error.to_string()),
            Some(News::Key(key, modifiers)) => match keys.press(key, modifiers, &recent) {
                Wish::Draw => {}
                Wish::Quit => break Ok(()),
                Wish::Explain(namespace, pod) => {
                    let (daemon, news) = (daemon.clone(), explainer.clone());
                    tokio::spawn(async move {
                        let question = [("namespace", namespace.as_str()), ("pod", pod.as_str())];
                        let report = daemon.ask("/api/v1/attempts", &question, Duration::ZERO).await;
                        // Ignored: the screen may have ended.
                        let _ = news.send(News::Explained(report)).await;
                    });
                }
            },
            Some(News::Resized) => {}
            Some(News::Gone) | None => break Ok(()),
        }
    };
    ratatui::try_restore().context("cannot restore the terminal")?;
    result
}

async fn ask(daemon: Daemon, news: mpsc::Sender<News>) {
    let mut tick = interval(REFRESH);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let recent = daemon.ask("/api/v1/top", &[], Duration::ZERO).await;
        if news.send(News::LastMinute(recent)).await.is_err() {
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
