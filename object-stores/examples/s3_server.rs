//! An S3 server on loopback in a process of its own, for `tierfeed bench objects`.
//!
//! Arguments come in threes: a prefix, how many objects are below it, and how many bytes each has. The
//! objects are in the bucket `bucket`; byte `i` of object `n` is `(31 i + 7 n) mod 251`. Prints where it
//! listens and serves until its input ends.

use std::{
    env,
    error::Error,
    io::{self, Read as _, Write as _},
};

use tierfeed_object_stores::test_server::{Access, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::serving(Access::Everybody);
    let arguments: Vec<String> = env::args().skip(1).collect();
    for kind in arguments.chunks(3) {
        let [prefix, count, bytes] = kind else { return Err("PREFIX COUNT BYTES ...".into()) };
        for number in 0..count.parse::<usize>()? {
            server.put_bytes(&format!("{prefix}/{number:06}"), object(number, bytes.parse()?));
        }
    }
    let mut output = io::stdout();
    writeln!(output, "{}", server.endpoint())?;
    output.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn object(number: usize, len: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..251).map(|at| ((31 * at + 7 * number) % 251) as u8).collect();
    period.iter().copied().cycle().take(len).collect()
}
