//! scratch
fn main() {
    let paths: Vec<std::path::PathBuf> = std::env::args().skip(1).map(Into::into).collect();
    match tierfeed_workload_analyzer::script::analyze(&paths) {
        Ok(a) => print!("{}", tierfeed_workload_analyzer::script::table(&a)),
        Err(e) => println!("error: {e}"),
    }
}
