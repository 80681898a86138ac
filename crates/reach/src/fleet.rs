//! The daemons that a question goes to.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde::de::DeserializeOwned;
use spans::{screen, text::sentence};

use crate::{
    Cluster, Daemon, Error, Options,
    find::{self, Found, Place},
};

/// For this time the leader is taken to be the same: a scheduler gives up its Lease after 15 s.
const LEADER_FOR: Duration = Duration::from_secs(5);

/// Where questions go.
pub enum Reach {
    /// To the daemon of a URL.
    Server(Daemon),
    /// To the daemons of a cluster.
    Cluster(Box<Fleet>),
}

/// The daemons of a cluster. The leader is looked up again when it may have changed.
pub struct Fleet {
    cluster: Cluster,
    namespace: Option<String>,
    found: Found,
    /// In the order of `found`: the leader, if it is known, and the others.
    daemons: Vec<Daemon>,
    since: Instant,
}

impl Reach {
    /// Finds the daemon of a URL, or those of a cluster. `is_plugin`: the program is called as a plugin of kubectl.
    ///
    /// # Errors
    ///
    /// When the URL or the kubeconfig cannot be used, or the cluster has no daemon.
    pub async fn of(options: &Options, is_plugin: bool) -> Result<Self> {
        if let Some(url) = options.url(is_plugin) {
            return Ok(Self::Server(Daemon::at(url)?));
        }
        let cluster = Cluster::of(options).await?;
        let fleet = Fleet::of(cluster, options.daemon_namespace.clone()).await?;
        Ok(Self::Cluster(Box::new(fleet)))
    }

    /// Which daemon is asked first, for people.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Server(daemon) => daemon.place(),
            Self::Cluster(fleet) => fleet.daemons.first().map(Daemon::place).unwrap_or_default(),
        }
    }

    /// Namespace of the kubeconfig's context, or `default`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Server(_) => "default",
            Self::Cluster(fleet) => &fleet.cluster.namespace,
        }
    }

    /// The cluster, unless the daemon is at a URL.
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Server(_) => None,
            Self::Cluster(fleet) => Some(&fleet.cluster),
        }
    }

    /// All daemons, that of the leader first if it is known.
    #[must_use]
    pub fn daemons(&self) -> &[Daemon] {
        match self {
            Self::Server(daemon) => std::slice::from_ref(daemon),
            Self::Cluster(fleet) => &fleet.daemons,
        }
    }

    /// Asks the leader's daemon, and all of them if it does not know or the leader is not known. At least one answer.
    ///
    /// # Errors
    ///
    /// When no daemon answers.
    pub async fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
        question: &[(&str, &str)],
        knows: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>> {
        let mut answers = Vec::new();
        let rest = match self {
            Self::Server(daemon) => return Ok(vec![daemon.ask(path, question, Duration::ZERO).await?]),
            Self::Cluster(fleet) => {
                fleet.refresh().await?;
                match fleet.found.leader {
                    Ok(_) => {
                        match fleet.daemons[0].ask(path, question, Duration::ZERO).await {
                            Ok(answer) if knows(&answer) => return Ok(vec![answer]),
                            Ok(answer) => answers.push(answer),
                            Err(error) if fleet.daemons.len() == 1 => return Err(error),
                            Err(error) => complain(&error),
                        }
                        &fleet.daemons[1..]
                    }
                    Err(_) => &fleet.daemons[..],
                }
            }
        };
        let more = join_all(rest.iter().map(|daemon| daemon.ask(path, question, Duration::ZERO))).await;
        let mut last = None;
        for answer in more {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if answers.is_empty() => return Err(error),
            Some(error) => complain(&error),
            None if answers.is_empty() => bail!("no daemon answers"),
            None => {}
        }
        Ok(answers)
    }

    /// Asks all daemons, and returns the first answer that knows, or else one that does not. For a question that waits: whichever scheduler
    /// leads meanwhile.
    ///
    /// # Errors
    ///
    /// When no daemon answers.
    pub async fn first<T: DeserializeOwned>(
        &self,
        path: &str,
        question: &[(&str, &str)],
        wait: Duration,
        knows: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let mut asked: FuturesUnordered<_> =
            self.daemons().iter().map(|daemon| daemon.ask(path, question, wait)).collect();
        let mut rest = None;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(answer) if knows(&answer) => return Ok(answer),
                Ok(answer) => rest = Some(Ok(answer)),
                Err(error) => rest = rest.or(Some(Err(error))),
            }
        }
        rest.unwrap_or_else(|| bail!("no daemon answers"))
    }
}

fn complain(error: &anyhow::Error) {
    screen::complain(&format!("schedspan: {}", sentence(error.as_ref())));
}

impl Fleet {
    async fn of(cluster: Cluster, namespace: Option<String>) -> Result<Self, Error> {
        let found = find::daemons(&cluster, namespace.as_deref()).await?;
        let daemons = daemons(&cluster, &found);
        report(&found);
        Ok(Self { cluster, namespace, found, daemons, since: Instant::now() })
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The Pod of the leader's daemon, or of any if the leader is not known.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub async fn first(&mut self) -> Result<Place, Error> {
        self.refresh().await?;
        let first = self.leader().or_else(|| self.found.others.first());
        first.cloned().ok_or_else(|| Error::NoDaemon { place: "the cluster".to_owned() })
    }

    /// The Pod of the leader's daemon, if the last look found it.
    #[must_use]
    pub fn leader(&self) -> Option<&Place> {
        self.found.leader.as_ref().ok()
    }

    async fn refresh(&mut self) -> Result<(), Error> {
        if self.since.elapsed() < LEADER_FOR {
            return Ok(());
        }
        let found = find::daemons(&self.cluster, self.namespace.as_deref()).await?;
        // Connections are kept as long as they lead to the same Pods.
        if found != self.found {
            if found.leader != self.found.leader {
                report(&found);
            }
            self.daemons = daemons(&self.cluster, &found);
            self.found = found;
        }
        self.since = Instant::now();
        Ok(())
    }
}

fn daemons(cluster: &Cluster, found: &Found) -> Vec<Daemon> {
    let Found { leader, others } = found;
    let places = leader.iter().chain(others).cloned();
    places.map(|place| Daemon::in_pod(cluster.clone(), place)).collect()
}

/// Says that the leader is not known, which makes answers slower, and perhaps incomplete.
fn report(found: &Found) {
    if let Err(why) = &found.leader {
        screen::complain(&format!("schedspan: asks all {} daemons: {why}", found.others.len()));
    }
}
