mod failure;
mod group;
mod honest;
mod messages;
mod peer;
