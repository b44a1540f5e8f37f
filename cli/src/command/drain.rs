//! `tierfeed drain`.

use super::status::{Reach, of_call, reach};
use crate::failure::Failure;

pub(crate) fn run(arguments: &Reach) -> Result<(), Failure> {
    super::runtime()?.block_on(async {
        let client = reach(arguments).await?;
        client.drain().await.map_err(of_call)
    })
}
