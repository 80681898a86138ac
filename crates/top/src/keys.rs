//! What keys do on the screen of `schedspan top`.

use kube_scheduler::last_minute::{LastMinute, Slow};
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use crate::Sort;

/// Longest filter: a Pod's name.
const MAX_FILTER: usize = 253;

/// What keys have selected so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// Order of phases and plugins.
    pub sort: Sort,
    /// Only names that contain this are shown, of plugins and Pods.
    pub filter: String,
    /// Whether the filter is being typed.
    pub typing: bool,
    /// The selected line of the slowest Pods.
    pub selected: usize,
    /// What is shown instead of the figures.
    pub page: Option<Page>,
}

/// A page of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// What keys do.
    Help,
    /// A Pod.
    Pod(Explained),
}

/// What there is about a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// What `schedspan explain` says.
    pub text: String,
    /// The waterfalls of its attempts.
    pub waterfall: String,
    /// Whether the waterfalls are shown.
    pub drawn: bool,
    /// The first line that is shown.
    pub top: u16,
}

impl Explained {
    /// What is shown.
    #[must_use]
    pub fn shown(&self) -> &str {
        if self.drawn { &self.waterfall } else { &self.text }
    }

    /// Takes a key. Returns whether the page stays.
    fn press(&mut self, key: KeyCode) -> bool {
        let last = u16::try_from(self.shown().lines().count()).unwrap_or(u16::MAX).saturating_sub(1);
        match key {
            KeyCode::Down | KeyCode::Char('j') => self.top = self.top.saturating_add(1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.top = self.top.saturating_sub(1),
            KeyCode::Enter if !self.drawn && !self.waterfall.is_empty() => (self.drawn, self.top) = (true, 0),
            _ if self.drawn => (self.drawn, self.top) = (false, 0),
            _ => return false,
        }
        true
    }
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing but another screen.
    Draw,
    /// The end.
    Quit,
    /// The explanation of a Pod: namespace and name.
    Explain(String, String),
}

impl Keys {
    /// Takes a key.
    pub fn press(&mut self, key: KeyCode, modifiers: KeyModifiers, recent: &LastMinute) -> Wish {
        if key == KeyCode::Char('c') && modifiers == KeyModifiers::CONTROL {
            return Wish::Quit;
        }
        if self.typing {
            self.type_filter(key);
            return Wish::Draw;
        }
        if let Some(page) = &mut self.page {
            let stays = match page {
                Page::Help => false,
                Page::Pod(explained) => explained.press(key),
            };
            if !stays {
                self.page = None;
            }
            return Wish::Draw;
        }
        let pods = shown(recent, &self.filter);
        match key {
            KeyCode::Char('q') => return Wish::Quit,
            // First the filter goes, then the screen.
            KeyCode::Esc if self.filter.is_empty() => return Wish::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter => {
                let selected = pods.get(self.selected.min(pods.len().saturating_sub(1)));
                return selected
                    .map_or(Wish::Draw, |pod| Wish::Explain(pod.namespace.clone(), pod.pod.clone()));
            }
            KeyCode::Char('/') => (self.typing, self.filter) = (true, String::new()),
            KeyCode::Char('?') => self.page = Some(Page::Help),
            KeyCode::Down | KeyCode::Char('j') => {
                self.selected = (self.selected + 1).min(pods.len().saturating_sub(1));
            }
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char(key) => self.sort = Sort::of_key(key).unwrap_or(self.sort),
            _ => {}
        }
        Wish::Draw
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.len() < MAX_FILTER && !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.selected = 0;
    }
}

/// The slowest Pods whose names pass the filter.
#[must_use]
pub fn shown<'a>(recent: &'a LastMinute, filter: &str) -> Vec<&'a Slow> {
    let passes = |slow: &&Slow| format!("{}/{}", slow.namespace, slow.pod).contains(filter);
    recent.slowest.iter().filter(passes).collect()
}

/// The page about keys.
pub const HELP: &str = "\
Keys

  Enter        explain the selected Pod; Enter again draws its attempts, Esc goes back
  up, down     select a Pod, or scroll its explanation; also k and j
  /            only Pods and plugins whose names contain the text; Esc shows all
  s            sort phases and plugins by the next column
  t p c n      sort them by time, p99, calls or name
  ?            this page
  q, Esc       end

The figures are those of the last minute, of one daemon. Slowest Pods are those whose attempts took longest.
";
