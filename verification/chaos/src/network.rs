//! The network between the hosts of a campaign with several nodes: one for each node and one for the manager,
//! each in a network namespace, with a link to a switch in the namespace of this process.
//!
//! A namespace lives as long as a process or descriptor of it, so nothing is left behind, however a campaign
//! ends. Packets between two hosts are dropped on arrival, by a rule of the receiver, as in a fabric that lost
//! them; a slow link queues and drops by its rate.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    net::Ipv4Addr,
    os::fd::AsRawFd as _,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, unshare};

/// The network of the hosts; its first three numbers.
const SUBNET: [u8; 3] = [10, 77, 0];

/// The number of the switch, in the namespace of this process.
const SWITCH: u8 = 254;

/// A slow link: far slower than nodes and cold store, with a queue of some requests.
const SLOW: &[&str] = &["tbf", "rate", "8mbit", "burst", "16kb", "latency", "300ms"];

/// Drops packets from the hosts in the set.
const RULES: &str = "table ip chaos {
    set cut { type ipv4_addr; }
    chain arriving {
        type filter hook input priority 0;
        ip saddr @cut drop
    }
}
";

/// A host: a network namespace with a link to the switch.
#[derive(Debug)]
struct Host {
    number: u32,
    namespace: File,
}

/// Two hosts, in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair(u32, u32);

impl Pair {
    pub(crate) fn of(one: u32, other: u32) -> Self {
        Self(one.min(other), one.max(other))
    }
}

#[derive(Debug)]
pub(crate) struct Network {
    hosts: Vec<Host>,
    cut: RefCell<BTreeSet<Pair>>,
    slow: RefCell<BTreeSet<u32>>,
}

impl Network {
    /// Moves this thread, and the processes that it starts later, into a network of `hosts`.
    pub(crate) fn make(hosts: u32) -> anyhow::Result<Self> {
        for program in ["ip", "nft", "tc", "nsenter"] {
            run(program, &["-V"])?;
        }
        unshare(CloneFlags::CLONE_NEWNET).context("cannot make a network namespace")?;
        run("ip", &["link", "set", "lo", "up"])?;
        run("ip", &["link", "add", "switch", "type", "bridge"])?;
        let own = format!("{}/24", address_of(SWITCH));
        run("ip", &["address", "add", &own, "dev", "switch"])?;
        run("ip", &["link", "set", "switch", "up"])?;
        let hosts = (0..hosts).map(Host::make).collect::<anyhow::Result<_>>()?;
        Ok(Self { hosts, cut: RefCell::default(), slow: RefCell::default() })
    }

    pub(crate) fn command(&self, host: u32, program: &Path) -> anyhow::Result<Command> {
        Ok(self.host(host)?.command(program))
    }

    /// Drops packets between pairs of hosts, in both directions. Returns the pairs whose packets were not
    /// dropped before.
    pub(crate) fn cut(&self, pairs: &[Pair]) -> anyhow::Result<Vec<Pair>> {
        let is_new = |pair: &&Pair| self.cut.borrow_mut().insert(**pair);
        let new: Vec<_> = pairs.iter().filter(is_new).copied().collect();
        self.set_rules("add", &new)?;
        Ok(new)
    }

    pub(crate) fn join(&self, pairs: &[Pair]) -> anyhow::Result<()> {
        self.cut.borrow_mut().retain(|pair| !pairs.contains(pair));
        self.set_rules("delete", pairs)
    }

    fn set_rules(&self, verb: &str, pairs: &[Pair]) -> anyhow::Result<()> {
        for Pair(one, other) in pairs {
            for (at, from) in [(one, other), (other, one)] {
                let mut nft = self.host(*at)?.command("nft");
                nft.args([verb, "element", "ip", "chaos", "cut"]);
                nft.arg(format!("{{ {} }}", address(*from)));
                complete(&mut nft)?;
            }
        }
        Ok(())
    }

    /// Slows the link of a host, in both directions. Returns whether it was not slow before.
    pub(crate) fn slow(&self, host: u32) -> anyhow::Result<bool> {
        if !self.slow.borrow_mut().insert(host) {
            return Ok(false);
        }
        self.set_queues(host, "add", SLOW)?;
        Ok(true)
    }

    pub(crate) fn restore_rate(&self, host: u32) -> anyhow::Result<()> {
        self.slow.borrow_mut().remove(&host);
        self.set_queues(host, "delete", &[])
    }

    fn set_queues(&self, host: u32, verb: &str, queue: &[&str]) -> anyhow::Result<()> {
        let host = self.host(host)?;
        for (mut tc, end) in
            [(host.command("tc"), host.inner_end()), (Command::new("tc"), host.outer_end())]
        {
            complete(tc.args(["qdisc", verb, "dev", &end, "root"]).args(queue))?;
        }
        Ok(())
    }

    fn host(&self, number: u32) -> anyhow::Result<&Host> {
        self.hosts.get(number as usize).with_context(|| format!("there is no host {number}"))
    }
}

impl Host {
    fn make(number: u32) -> anyhow::Result<Self> {
        let host = Self { number, namespace: new_namespace()? };
        let (outer, inner) = (host.outer_end(), host.inner_end());
        run("ip", &["link", "add", &outer, "type", "veth", "peer", "name", &inner])?;
        run("ip", &["link", "set", &inner, "netns", &host.path()])?;
        run("ip", &["link", "set", &outer, "master", "switch", "up"])?;
        let address = format!("{}/24", address(number));
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["address", "add", &address, "dev", &inner],
            &["link", "set", &inner, "up"],
        ] {
            complete(host.command("ip").args(arguments))?;
        }
        complete(host.command("nft").arg(RULES))?;
        Ok(host)
    }

    /// A path of the namespace that other processes can open as long as this one runs.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd())
    }

    /// A command on this host.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(format!("--net={}", self.path())).arg("--").arg(program);
        nsenter
    }

    fn outer_end(&self) -> String {
        format!("port{}", self.number)
    }

    fn inner_end(&self) -> String {
        format!("net{}", self.number)
    }
}

pub(crate) fn address(host: u32) -> Ipv4Addr {
    // There are far fewer hosts.
    address_of(u8::try_from(host + 1).unwrap_or(SWITCH))
}

fn address_of(number: u8) -> Ipv4Addr {
    let [a, b, c] = SUBNET;
    Ipv4Addr::new(a, b, c, number)
}

/// A network namespace that lives as long as this file is open.
fn new_namespace() -> anyhow::Result<File> {
    let opened = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        File::open("/proc/thread-self/ns/net")
    });
    let opened = opened.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    opened.context("cannot make a network namespace")
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    complete(Command::new(program).args(arguments))
}

/// Runs a command to its end, and fails if the command fails.
pub(crate) fn complete(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
