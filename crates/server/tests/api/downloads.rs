//! Downloads of the agent program while unknown clients hold all they can.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use proctor_runtime::Tasks;
use proctor_server::api::{self, ApiState, Settings};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{APP, SECRET, World};

const PATIENCE: Duration = Duration::from_secs(60);
/// More than the buffers of a connection hold.
const LARGE_BYTES: u64 = 64 * 1024 * 1024;
const SMALL: &[u8] = b"a small program";
const STRANGERS: u8 = 32;

struct Served {
    world: World,
    address: SocketAddr,
    tasks: Tasks,
    _dir: tempfile::TempDir,
}

async fn served() -> Served {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("large")).unwrap().set_len(LARGE_BYTES).unwrap();
    std::fs::write(dir.path().join("small"), SMALL).unwrap();
    let (world, tasks) = (World::new().await, Tasks::default());
    let settings = Settings { download_dir: Some(dir.path().to_owned()), ..Settings::default() };
    let state = ApiState::new(world.control.clone(), None, settings);
    let address = api::serve("127.0.0.1:0".parse().unwrap(), state, None, &tasks).await.unwrap();
    Served { world, address, tasks, _dir: dir }
}

impl Served {
    /// Asks from an address of the loopback network.
    async fn ask(&self, from: Ipv4Addr, name: &str, headers: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        let head = format!("GET /download/{name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// Unknown clients that read the first bytes and then nothing.
    async fn hold_all(&self) -> Vec<TcpStream> {
        let mut held = Vec::new();
        for number in 0..STRANGERS {
            let mut stream = self.ask(Ipv4Addr::new(127, 0, 1, number + 1), "large", "").await;
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).await.unwrap();
            assert_eq!(&begin, b"HTTP/1.1 200");
            held.push(stream);
        }
        held
    }

    async fn download(&self, from: Ipv4Addr, headers: &str) -> String {
        let mut stream = self.ask(from, "small", headers).await;
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
        answer
    }

    async fn end(self) {
        assert!(self.tasks.end(PATIENCE).await);
        self.world.end().await;
    }
}

fn is_whole(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 200") && answer.ends_with("a small program")
}

#[tokio::test]
async fn slow_strangers_give_way_to_a_new_host() {
    let served = served().await;
    let held = served.hold_all().await;

    let soon = async {
        while !is_whole(&served.download(Ipv4Addr::new(127, 0, 2, 1), "").await) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };

    // Sooner than the limit of connections that read nothing.
    tokio::time::timeout(Duration::from_secs(25), soon).await.expect("a slow download gives way");
    drop(held);
    served.end().await;
}

#[tokio::test]
async fn administrators_and_hosts_download_while_strangers_hold_every_slot() {
    let served = served().await;
    served.world.enrol("0:127.0.3.1", "020000000052540a9b2c1699").await;
    let who = json!({ "bk_app_code": APP, "bk_app_secret": SECRET, "bk_username": "admin" });
    let held = served.hold_all().await;

    let of_administrator = served.download(Ipv4Addr::LOCALHOST, &format!("X-Bkapi-Authorization: {who}\r\n")).await;
    let of_host = served.download(Ipv4Addr::new(127, 0, 3, 1), "").await;

    assert!(is_whole(&of_administrator), "{of_administrator}");
    assert!(is_whole(&of_host), "{of_host}");
    drop(held);
    served.end().await;
}
