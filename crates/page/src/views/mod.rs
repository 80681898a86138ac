//! The views. Each is a function of data; none knows time or network.

pub(crate) mod attempts;
pub(crate) mod health;
pub(crate) mod pending;
pub(crate) mod plugins;
pub(crate) mod pod;

use maud::{Markup, html};

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Pods by what rejects them.
    Pending,
    /// All attempts that are remembered.
    Attempts,
    /// One Pod.
    Pod,
    /// Where time goes.
    Plugins,
    /// What is probed, and what is lost.
    Health,
}

impl View {
    /// All views.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Attempts, Self::Pod, Self::Plugins, Self::Health];

    /// Its path.
    #[must_use]
    pub const fn path(self) -> &'static str {
        match self {
            Self::Pending => "/",
            Self::Attempts => "/attempts",
            Self::Pod => "/pod",
            Self::Plugins => "/plugins",
            Self::Health => "/health",
        }
    }

    /// Its name in the navigation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Attempts => "Attempts",
            Self::Pod => "Pod",
            Self::Plugins => "Plugins",
            Self::Health => "Health",
        }
    }
}

/// The class of a result, for its colour.
pub(crate) fn class(result: Option<&str>) -> &'static str {
    match result {
        Some("Success") => "ok",
        Some("Unschedulable") => "no",
        Some(_) => "bad",
        None => "dim",
    }
}

/// A result as a mark with a word: colour is never the only sign.
pub(crate) fn mark(result: Option<&str>) -> Markup {
    html! { span.mark.(class(result)) { (crate::text::Foreign(result.unwrap_or("not seen"))) } }
}

/// A bar from one share to another of its row, in percent.
pub(crate) fn bar(start: &str, width: &str, class: &str) -> Markup {
    html! { svg.bar aria-hidden="true" { rect.(class) x=(start) y="0" width=(width) height="100%" rx="2" {} } }
}

/// What is shown where there is no such path.
pub(crate) fn missing() -> Markup {
    html! { h1 { "There is no such page" } p { "The views are in the line above." } }
}
