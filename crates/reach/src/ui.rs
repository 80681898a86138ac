//! The daemon's page in a browser.

use std::{net::Ipv4Addr, process::Stdio};

use anyhow::{Context as _, Result};
use spans::screen;
use tokio::{net::TcpListener, process::Command};

use crate::{Options as Whose, Reach, forward};

/// Programs that open a URL.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// Options of the page.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Options {
    /// Port on 127.0.0.1; 0 for any that is free
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    /// Open the page in a browser
    #[arg(long)]
    open: bool,
    #[command(flatten)]
    whose: Whose,
}

/// Prints the URL, and opens it; in a cluster it forwards the port until stopped.
///
/// # Errors
///
/// When there is no daemon, or the port is taken.
pub async fn run(options: Options, is_plugin: bool) -> Result<()> {
    let Options { port, open, whose } = options;
    match Reach::of(&whose, is_plugin).await? {
        Reach::Server(daemon) => show(&daemon.place(), open).await,
        Reach::Cluster(mut fleet) => {
            // Says what is wrong before the browser does.
            let place = fleet.first().await?;
            drop(forward::connect(fleet.cluster(), &place).await?);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
            let listener = listener
                .with_context(|| format!("cannot listen on 127.0.0.1:{port}; give another --port"))?;
            let url = format!("http://{}/", listener.local_addr()?);
            screen::complain(&format!(
                "schedspan: forwards to {place}, and to the daemon of another leader; Ctrl-C ends it"
            ));
            show(&url, open).await?;
            forward::serve(listener, *fleet).await.context("cannot accept connections any more")
        }
    }
}

async fn show(url: &str, open: bool) -> Result<()> {
    screen::print(&format!("{url}\n")).context("cannot write to stdout")?;
    if open {
        for opener in OPENERS {
            let mut command = Command::new(opener);
            command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if command.status().await.is_ok_and(|status| status.success()) {
                return Ok(());
            }
        }
        screen::complain("schedspan: no browser could be started; open the URL by hand");
    }
    Ok(())
}
