//! Relays of cloud area 0, each a real program in front of a fleet's server.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use crate::{Fleet, Program, eventually, free_port, run_proctor};

/// In the same area as the other tests.
#[derive(Debug)]
pub struct Relays {
    pub programs: Vec<Program>,
    pub ports: Vec<u16>,
    arguments: Vec<Vec<String>>,
    dir: PathBuf,
}

impl Relays {
    /// Returns when they are connected.
    pub async fn start(fleet: &Fleet, count: usize) -> Result<Self> {
        let data = fleet.dir().join("data").display().to_string();
        let uses = count.to_string();
        let create = ["token", "create", "--relay", "--cloud-id", "0", "--uses", &uses, "--data-dir", &data];
        let token = run_proctor(&create)?;
        let mut relays =
            Self { programs: Vec::new(), ports: Vec::new(), arguments: Vec::new(), dir: fleet.dir().to_owned() };
        for index in 0..count {
            let port = free_port();
            let own = [
                "relay".to_owned(),
                "--upstream".to_owned(),
                format!("127.0.0.1:{}", fleet.server.link),
                "--listen".to_owned(),
                format!("127.0.0.1:{port}"),
                "--cloud-id".to_owned(),
                "0".to_owned(),
                "--state-dir".to_owned(),
                fleet.dir().join(format!("relay-{index}")).display().to_string(),
            ];
            let mut first = own.to_vec();
            first.extend(["--token".to_owned(), token.clone()]);
            relays.programs.push(Program::start("proctor", &first, &relays.log(index))?);
            relays.ports.push(port);
            relays.arguments.push(own.to_vec());
        }
        relays.until_connected(fleet, count).await;
        Ok(relays)
    }

    fn log(&self, index: usize) -> PathBuf {
        self.dir.join(format!("relay-{index}.log"))
    }

    pub async fn until_connected(&self, fleet: &Fleet, count: usize) {
        eventually("the relays are connected", || async {
            let relays = fleet.get("/api/v1/relays").await.ok()?;
            let connected = |relay: &&Value| relay["connected"] == true;
            (relays["relays"].as_array()?.iter().filter(connected).count() == count).then_some(())
        })
        .await;
    }

    /// How many agents each one carries, as the server sees it; None where it does not answer.
    pub async fn carried(&self, fleet: &Fleet) -> Option<Vec<u64>> {
        let relays = fleet.get("/api/v1/relays").await.ok()?;
        Some(relays["relays"].as_array()?.iter().map(|relay| relay["agents"].as_u64().unwrap_or(0)).collect())
    }

    /// The same command again, without a token.
    pub fn restart(&mut self, index: usize) -> Result<()> {
        self.programs[index] = Program::start("proctor", &self.arguments[index], &self.log(index))?;
        Ok(())
    }

    /// As agents and swarms take them.
    pub fn endpoints(&self) -> String {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
    }
}
