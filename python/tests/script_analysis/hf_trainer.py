from dataclasses import dataclass, field

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class Settings:
    corpus: str = "wikitext"
    variant: str = "wikitext-103-raw-v1"
    block: int = field(default=1024, metadata={"help": "tokens in a sample"})


def main():
    settings = Settings()
    set_seed(17)
    raw = load_dataset(settings.corpus, settings.variant, split="train")
    held_out = load_dataset(settings.corpus, settings.variant, split="validation")
    tokenizer = AutoTokenizer.from_pretrained("gpt2")

    def encode(rows):
        return tokenizer(rows["text"], truncation=True, max_length=settings.block)

    columns = raw.column_names
    train_set = raw.map(encode, batched=True, num_proc=16, remove_columns=columns).shuffle(seed=17)
    eval_set = held_out.map(encode, batched=True, remove_columns=columns)

    arguments = TrainingArguments(
        output_dir="out/gpt2",
        per_device_train_batch_size=12,
        per_device_eval_batch_size=12,
        gradient_accumulation_steps=4,
        num_train_epochs=3,
        save_strategy="steps",
        save_steps=500,
        save_total_limit=2,
        dataloader_num_workers=4,
        bf16=True,
    )
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained("gpt2"),
        args=arguments,
        train_dataset=train_set,
        eval_dataset=eval_set,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model("out/gpt2/final")


if __name__ == "__main__":
    main()
