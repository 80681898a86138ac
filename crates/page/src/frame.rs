//! What is around each view.

use api::Daemon;
use maud::{DOCTYPE, Markup, html};

use crate::{text::Foreign, views::View};

pub(crate) const STYLE: &str = "/assets/page.css";
pub(crate) const SCRIPT: &str = "/assets/page.js";
pub(crate) const ICON: &str = "/assets/icon.svg";

/// A whole page.
pub(crate) fn page(view: View, title: &str, daemon: &Daemon, content: &Markup) -> Markup {
    let schedulers = daemon.targets.all().len();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (Foreign(title)) " · schedspan" }
                link rel="icon" href=(ICON);
                link rel="stylesheet" href=(STYLE);
                script type="module" src=(SCRIPT) {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href="/" { "schedspan" }
                    nav aria-label="Views" {
                        @for other in View::ALL {
                            a href=(other.path()) aria-current=[(other == view).then_some("page")] { (other.name()) }
                        }
                    }
                    form.find action="/pod" role="search" {
                        input #find type="search" name="pod" placeholder="namespace/pod" aria-label="Find a Pod by namespace and name" autocomplete="off" spellcheck="false";
                    }
                    p.live #live data-state="off" role="status" { "not live" }
                }
                main #main tabindex="-1" { (content) }
                footer {
                    p {
                        "schedspan " (env!("CARGO_PKG_VERSION")) " · "
                        @if schedulers == 1 { "1 process is traced" } @else { (schedulers) " processes are traced" }
                        " · times are UTC · " a href="/api/v1/openapi.json" { "API" }
                    }
                }
            }
        }
    }
}
