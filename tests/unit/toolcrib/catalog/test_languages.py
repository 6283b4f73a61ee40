"""Tools that speak German, French, Spanish or Russian, among English ones, are found by other forms of their words."""

import pytest

from toolcrib.catalog.index import Index, IndexEntry

TOOLS = {
    "de": {
        "rechnung_erstellen": "Erstellt eine neue Rechnung für einen Kunden.",
        "rechnung_stornieren": "Storniert eine bestehende Rechnung.",
        "termine_suchen": "Sucht freie Termine im Kalender eines Mitarbeiters.",
        "datei_hochladen": "Lädt eine Datei in einen Ordner hoch.",
        "bestellung_verfolgen": "Verfolgt den Versand einer Bestellung.",
        "wetter_abrufen": "Ruft die Wettervorhersage für einen Ort ab.",
    },
    "fr": {
        "creer_facture": "Crée une nouvelle facture pour un client.",
        "annuler_commande": "Annule une commande existante.",
        "rechercher_vols": "Recherche les vols disponibles entre deux villes.",
        "envoyer_courriel": "Envoie un courriel à un destinataire.",
        "traduire_texte": "Traduit un texte dans une autre langue.",
        "reserver_chambre": "Réserve une chambre d'hôtel.",
    },
    "es": {
        "crear_factura": "Crea una factura nueva para un cliente.",
        "cancelar_pedido": "Cancela un pedido existente.",
        "buscar_vuelos": "Busca vuelos disponibles entre dos ciudades.",
        "enviar_correo": "Envía un correo electrónico a un destinatario.",
        "traducir_texto": "Traduce un texto a otro idioma.",
        "reservar_habitacion": "Reserva una habitación de hotel.",
    },
    "ru": {
        "создать_счёт": "Создаёт новый счёт для клиента.",
        "отменить_заказ": "Отменяет существующий заказ.",
        "найти_рейсы": "Ищет доступные авиарейсы между городами.",
        "отправить_письмо": "Отправляет электронное письмо получателю.",
        "перевести_текст": "Переводит текст на другой язык.",
        "прогноз_погоды": "Показывает прогноз погоды для города.",
    },
    "en": {
        "create_invoice": "Create an invoice for a customer.",
        "search_flights": "Search available flights between two cities.",
        "send_email": "Send an email to a recipient.",
        "translate_text": "Translate text.",
        "get_weather": "Get the weather forecast for a city.",
    },
}

ASKED = [
    ("Rechnungen anlegen", "de__rechnung_erstellen"),
    ("die Stornierung von Rechnungen", "de__rechnung_stornieren"),
    ("einen freien Termin finden", "de__termine_suchen"),
    ("Dateien hochgeladen", "de__datei_hochladen"),
    ("wo sind meine Bestellungen", "de__bestellung_verfolgen"),
    ("Vorhersagen des Wetters", "de__wetter_abrufen"),
    ("créer des factures", "fr__creer_facture"),
    ("annulation de commandes", "fr__annuler_commande"),
    ("un vol pour Paris", "fr__rechercher_vols"),
    ("envoi de courriels", "fr__envoyer_courriel"),
    ("traduction de textes", "fr__traduire_texte"),
    ("réservation de chambres", "fr__reserver_chambre"),
    ("facturas nuevas", "es__crear_factura"),
    ("cancelación de pedidos", "es__cancelar_pedido"),
    ("un vuelo a Madrid", "es__buscar_vuelos"),
    ("envío de correos", "es__enviar_correo"),
    ("traducción de textos", "es__traducir_texto"),
    ("reservas de habitaciones", "es__reservar_habitacion"),
    ("создание счетов", "ru__создать_счёт"),
    ("отмена заказов", "ru__отменить_заказ"),
    ("поиск рейсов", "ru__найти_рейсы"),
    ("отправка писем", "ru__отправить_письмо"),
    ("перевод текстов", "ru__перевести_текст"),
    ("погода в городе", "ru__прогноз_погоды"),
]


def entries() -> list[IndexEntry]:
    return [
        IndexEntry(name=f"{source}__{leaf}", leaf=leaf, source=source, description=said)
        for source, tools in TOOLS.items()
        for leaf, said in tools.items()
    ]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index(entries())


@pytest.mark.parametrize(("query", "wanted"), ASKED)
def test_another_form_of_its_words_finds_the_tool_first(index: Index, query: str, wanted: str) -> None:
    assert [hit.name for hit in index.search(query, 1)] == [wanted]


def test_a_word_that_only_begins_alike_is_not_taken_for_another(index: Index) -> None:
    assert index.search("Rechtsanwalt", 3) == []


def test_words_are_found_by_their_beginning_after_tools_came_and_went() -> None:
    index = Index(entry for entry in entries() if entry.source != "de")
    assert index.search("Rechnungen", 1) == []
    index.update(entry for entry in entries() if entry.source == "de")
    assert index.search("Rechnungen", 10) == Index(sorted(entries(), key=lambda one: one.source == "de")).search(
        "Rechnungen", 10
    )
    assert index.search("Rechnungen", 10)
    index.update(removed=["de__rechnung_erstellen", "de__rechnung_stornieren"])
    assert index.search("Rechnungen", 1) == []
