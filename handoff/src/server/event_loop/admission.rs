//! Decides who is admitted: a process that its launcher made one of the ranks of the job, and each
//! rank once.
//!
//! The rank follows from the variables that the process sends and from the job, by the table of
//! [`launch`]. Of a rank one training process may be connected, with any number of connections; the
//! worker processes that it starts are no ranks of their own. A process states itself whose worker
//! it is, and this is accepted if the kernel knows it as a descendant.

use std::collections::BTreeMap;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tierfeed_core::{fleet::launch, id::ConnectionId};

use super::EventLoop;
use crate::{
    message::{SentHello, VARIABLE_BYTES_MAX},
    peer,
    server::{
        ClientEvent,
        connection::Connection,
        member::{Member, TurnedAway},
        violation::Rule,
    },
};

impl EventLoop {
    #[expect(clippy::result_large_err, reason = "a few of these in the life of an agent")]
    pub(super) fn handle_hello(
        &self,
        id: ConnectionId,
        hello: &SentHello,
    ) -> Result<Option<ClientEvent>, Rule> {
        check_variables(&hello.variables)?;
        let mut connections = self.shared.connections();
        let Some(connection) = connections.get_mut(&id) else { return Ok(None) };
        if !connection.hello(hello.protocol, hello.role)? {
            return Ok(None);
        }
        let seen = peer::number(connection.socket()).unwrap_or_default();
        let member = Member::of(hello, seen, &self.post).and_then(|second| {
            let mut others =
                connections.values().filter(|it| !is_over(it)).filter_map(|it| it.member);
            match others.find(|first| first.doubles(&second)) {
                Some(first) => Err(TurnedAway::Twice { first, second }),
                None => Ok(second),
            }
        });
        let Some(connection) = connections.get_mut(&id) else { return Ok(None) };
        Ok(Some(match member {
            Ok(member) => {
                connection.await_admission(member);
                let trainer = member.trainer.map(|it| it.pid);
                ClientEvent::Attached {
                    connection: id,
                    rank: member.rank,
                    role: hello.role,
                    trainer,
                    pages: hello.pages,
                }
            }
            Err(error) => {
                let reason = error.to_string();
                connection.turn_away(&reason);
                ClientEvent::TurnedAway { reason }
            }
        }))
    }
}

/// Checks that the variables are in the table and within its limits, as a correct client sends
/// them.
fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), Rule> {
    let is_known = |(name, value): (&String, &String)| {
        launch::is_known(name) && value.len() <= VARIABLE_BYTES_MAX
    };
    if variables.iter().all(is_known) { Ok(()) } else { Err(Rule::Variables) }
}

/// Whether the process has ended or disconnected, though the thread of the server has not seen it
/// yet. A trainer that is restarted must not be refused because of its own predecessor.
fn is_over(connection: &Connection) -> bool {
    let ended = PollFlags::IN;
    let left = PollFlags::RDHUP;
    let now = Timespec::default();
    let socket = PollFd::from_borrowed_fd(connection.socket(), left);
    let polled = match &connection.process {
        Some(process) => poll(&mut [socket, PollFd::new(process, ended)], Some(&now)),
        None => poll(&mut [socket], Some(&now)),
    };
    // A poll that fails has seen nothing.
    connection.has_ended || matches!(polled, Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_endless_variables_break_a_rule() {
        let check = |name: &str, value: &str| {
            check_variables(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        assert!(check("RANK", "0").is_ok());
        assert!(matches!(check("HOME", "0"), Err(Rule::Variables)));
        let long = "0".repeat(VARIABLE_BYTES_MAX + 1);
        assert!(matches!(check("RANK", &long), Err(Rule::Variables)));
    }
}
