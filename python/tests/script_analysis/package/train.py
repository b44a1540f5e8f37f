"""A training of several files."""
import argparse

from recipe import settings
from recipe.data import get_loaders
from recipe.model import Model
import recipe.saving as saving


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=settings.EPOCHS)
    parser.set_defaults(verbose=True)
    args = parser.parse_args(argv)
    train, test = get_loaders(settings.Data(workers=6))
    model = Model()
    for epoch in range(args.epochs):
        model.fit_one(train)
        if epoch % settings.SAVE_EVERY == 0:
            saving.save(model, epoch)
    model.score(test)


if __name__ == "__main__":
    main()
